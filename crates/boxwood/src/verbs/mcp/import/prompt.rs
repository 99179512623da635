//! Prompts on the terminal. Secrets are not echoed, and the terminal settings are always restored.

use std::io::{self, IsTerminal as _, Write as _};

/// Returns true if the user can be prompted.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

pub(super) fn line(question: &str) -> io::Result<String> {
    eprint!("{question}: ");
    io::stderr().flush()?;
    let mut answer = String::new();
    if io::stdin().read_line(&mut answer)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer.trim_end_matches(['\r', '\n']).to_owned())
}

pub(super) fn secret(question: &str) -> io::Result<String> {
    eprint!("{question} (not shown): ");
    io::stderr().flush()?;
    let answer = {
        // Ctrl-C is read as a key too, because a signal would leave the terminal without echo.
        let _quiet = crate::interactive::terminal::RawMode::enter()?;
        typed(&mut io::stdin().lock())
    };
    eprintln!();
    answer
}

/// What was typed until Enter, from a terminal in raw mode.
fn typed(keys: &mut impl io::Read) -> io::Result<String> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const BACKSPACE: u8 = 8;
    const CTRL_U: u8 = 21;
    const DELETE: u8 = 127;
    let mut line = Vec::new();
    let mut key = [0];
    loop {
        if keys.read(&mut key)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match key[0] {
            b'\r' | b'\n' => break,
            CTRL_C => return Err(io::ErrorKind::Interrupted.into()),
            CTRL_D if line.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                // One character may be several bytes.
                while let Some(byte) = line.pop() {
                    if byte & 0b1100_0000 != 0b1000_0000 {
                        break;
                    }
                }
            }
            byte => line.push(byte),
        }
    }
    String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_can_be_corrected_while_it_is_typed() {
        let read = |keys: &str| typed(&mut keys.as_bytes());
        assert_eq!(read("hunter2\r").ok().as_deref(), Some("hunter2"));
        assert_eq!(
            read("wrong\u{15}ab\u{7f}\u{8}c\n").ok().as_deref(),
            Some("c")
        );
        assert_eq!(read("aé\u{7f}b\r").ok().as_deref(), Some("ab"));
        assert_eq!(read("\u{7f}\r").ok().as_deref(), Some(""));
        let kind = |keys: &str| read(keys).err().map(|error| error.kind());
        assert_eq!(kind("ab\u{3}"), Some(io::ErrorKind::Interrupted));
        assert_eq!(kind("\u{4}"), Some(io::ErrorKind::UnexpectedEof));
        assert_eq!(kind("ab"), Some(io::ErrorKind::UnexpectedEof));
    }
}
