//! Two pipes between the gateway and a fake server.

use boxwood_agent::{Answer, BoxesError};
use boxwood_api::ErrorCode;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, watch};

use crate::hosting::{ProcessExit, ProcessIo};

pub(in crate::gateway) struct Pipe {
    written: Mutex<mpsc::Receiver<Bytes>>,
    input: mpsc::Sender<Bytes>,
    exited: watch::Receiver<bool>,
}

/// The server's ends.
pub(in crate::gateway) struct Ends {
    pub(in crate::gateway) output: mpsc::Sender<Bytes>,
    pub(in crate::gateway) input: mpsc::Receiver<Bytes>,
    pub(in crate::gateway) exit: watch::Sender<bool>,
}

pub(in crate::gateway) fn pipe() -> (Pipe, Ends) {
    let (output, written) = mpsc::channel(64);
    let (sender, input) = mpsc::channel(64);
    let (exit, exited) = watch::channel(false);
    let pipe = Pipe {
        written: Mutex::new(written),
        input: sender,
        exited,
    };
    let ends = Ends {
        output,
        input,
        exit,
    };
    (pipe, ends)
}

impl ProcessIo for Pipe {
    fn next(&self) -> BoxFuture<'_, Option<Bytes>> {
        async { self.written.lock().await.recv().await }.boxed()
    }

    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>> {
        async move {
            self.input.send(bytes).await.map_err(|_| BoxesError {
                code: ErrorCode::BackendUnavailable,
                message: "its input is closed".to_owned(),
                hint: None,
                reached: true,
            })
        }
        .boxed()
    }

    fn close_input(&self) {}

    fn exited(&self) -> BoxFuture<'_, ProcessExit> {
        let mut exited = self.exited.clone();
        async move {
            let _ = exited.wait_for(|exited| *exited).await;
            ProcessExit {
                exit_code: Some(0),
                why: None,
            }
        }
        .boxed()
    }
}
