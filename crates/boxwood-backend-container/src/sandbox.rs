//! A box in a container, reached directly or through the engine.

use std::io;
use std::sync::Arc;

use boxwood_api::IsolationLabel;
use boxwood_backend::{
    BoxFuture, ControlError, Exit, FileAnswer, FileCall, FileError, FileFault, MountError, Process,
    ProcessControl, Sandbox, Scope, SpawnError, SpawnRequest, Stdio, StopError, TerminalSize,
};
use boxwood_local::LocalBox;
use boxwood_policy::AdmittedMount;

use crate::relayed::Relay;

pub(crate) struct ContainerBox {
    local: LocalBox,
    /// Set if the box is reached through the engine.
    relay: Option<Arc<Relay>>,
    /// False if the kernel under the box has no usable terminals.
    terminals: bool,
}

impl ContainerBox {
    pub(crate) fn direct(local: LocalBox) -> Self {
        Self {
            local,
            relay: None,
            terminals: true,
        }
    }

    pub(crate) fn relayed(local: LocalBox, relay: Arc<Relay>, terminals: bool) -> Self {
        Self {
            local,
            relay: Some(relay),
            terminals,
        }
    }
}

impl Sandbox for ContainerBox {
    fn id(&self) -> &str {
        self.local.id()
    }

    fn label(&self) -> &IsolationLabel {
        self.local.label()
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(async move {
            if !self.terminals && matches!(request.stdio, Stdio::Terminal(_)) {
                return Err(SpawnError::Step {
                    step: "open a terminal (not supported by this backend)".to_owned(),
                    source: io::ErrorKind::Unsupported.into(),
                });
            }
            let mut process = self.local.spawn(request).await?;
            if let Some(relay) = &self.relay {
                process.control = Arc::new(Relayed {
                    control: process.control,
                    relay: Arc::clone(relay),
                });
            }
            Ok(process)
        })
    }

    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>> {
        // Tools return bytes and work everywhere.
        if self.relay.is_none() || matches!(call, FileCall::Tool(_)) {
            return self.local.file(call);
        }
        if !self.is_alive() {
            return Box::pin(async { Err(FileError::Gone) });
        }
        let path = match call {
            FileCall::Open { path, .. }
            | FileCall::Stat { path, .. }
            | FileCall::List { path, .. }
            | FileCall::Mkdir { path, .. }
            | FileCall::Remove { path, .. }
            | FileCall::Move { from: path, .. } => path,
            FileCall::Tool(tool) => tool.path().to_owned(),
        };
        let error = FileError::Fault {
            fault: FileFault::Other,
            path,
            text: "this backend does not support file operations because descriptors cannot be passed; use a \
                   command instead"
                .to_owned(),
        };
        Box::pin(async move { Err(error) })
    }

    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>> {
        if self.relay.is_none() {
            return self.local.mount(mount);
        }
        Box::pin(async { Err(MountError::Unsupported) })
    }

    fn is_alive(&self) -> bool {
        self.local.is_alive()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        self.local.gone()
    }

    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>> {
        match &self.relay {
            None => self.local.remember(record),
            // A relayed box ends with its connection.
            Some(_) => Box::pin(async { Ok(()) }),
        }
    }

    fn detach(&self) {
        if self.relay.is_none() {
            self.local.detach();
        }
    }

    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        self.local.freeze()
    }

    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.local.thaw()
    }

    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.local.kill_all()
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        self.local.stop()
    }
}

/// A program whose terminal is relayed; a resize must be sent to the box.
struct Relayed {
    control: Arc<dyn ProcessControl>,
    relay: Arc<Relay>,
}

impl ProcessControl for Relayed {
    fn wait(&self) -> BoxFuture<'_, Exit> {
        self.control.wait()
    }

    fn signal(&self, signal: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>> {
        self.control.signal(signal, scope)
    }

    fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        self.control.resize(size)?;
        self.relay.resized();
        Ok(())
    }
}
