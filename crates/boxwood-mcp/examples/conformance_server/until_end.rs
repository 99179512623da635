//! An input that cancels a token at its end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// At the end of the input the SDK waits for all running requests, and a subscription never completes.
pub(crate) struct UntilEnd<R> {
    pub(crate) input: R,
    pub(crate) ended: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilEnd<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.input).poll_read(context, into);
        if read.is_ready() && into.filled().len() == before && into.remaining() > 0 {
            self.ended.cancel();
        }
        read
    }
}
