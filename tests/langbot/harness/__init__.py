"""What every LangBot suite shares: the daemon under test, and what it may leave behind."""
