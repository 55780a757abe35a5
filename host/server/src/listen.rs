//! Listeners: a TCP address, and the socket in the data folder.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_model::fault::{Fault, FaultKind};

/// How long requests may take that run when the listener closes. A follower waits longer than this; it asks again.
const GRACE: Duration = Duration::from_millis(500);
/// The longest path that a socket address holds, everywhere (macOS; Linux has four more).
const MAX_SOCKET_PATH: usize = 103;

/// Listens on an address.
pub async fn bind_tcp(listen: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(listen).await.map_err(|e| {
        Fault::host(FaultKind::Config, format_args!("cannot listen on {listen}: {e}"))
            .field("listen")
            .fix("choose another address with --listen, or end the process that has it")
    })
}

/// Listens on a socket that only this user can open. Replaces one that a killed host left behind, so the caller must
/// hold the data folder: two hosts on one folder would take the socket from each other.
pub async fn bind_unix(path: &Path) -> Result<UnixListener, Fault> {
    private_socket(path).map_err(|e| {
        Fault::host(FaultKind::Disk, format_args!("cannot make the socket: {e}"))
            .file(path.display())
            .fix("the data folder must be on a local file system and writable for this user")
    })
}

/// Made in a folder that nobody else can enter, then moved: there is no moment when others could connect.
fn private_socket(path: &Path) -> io::Result<UnixListener> {
    let folder = path.with_extension("sock.new");
    let inside = folder.join("s");
    for left in [fs::remove_file(&inside), fs::remove_dir(&folder)] {
        if let Err(e) = left
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(e);
        }
    }
    DirBuilder::new().mode(0o700).create(&folder)?;
    let address = SocketPath::new(&inside)?;
    let listener = UnixListener::bind(address.get())?;
    fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
    fs::rename(&inside, path)?;
    fs::remove_dir(&folder)?;
    Ok(listener)
}

/// A path that fits into a socket address, also when the data folder's does not.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Keeps the folder's short name valid.
    _folder: Option<File>,
}

impl SocketPath {
    /// For a socket at `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().len() <= MAX_SOCKET_PATH || !cfg!(target_os = "linux") {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let folder = File::open(folder)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        Ok(Self { path: short.join(name), _folder: Some(folder) })
    }
    /// The path to bind or connect to, as long as `self` lives.
    pub fn get(&self) -> &Path {
        &self.path
    }
}

/// A listener at work.
#[derive(Debug)]
pub struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
    socket: Option<PathBuf>,
}

impl Serving {
    /// Serves an address.
    pub fn tcp(listener: TcpListener, router: Router) -> Self {
        Self::start(listener, router, None)
    }
    /// Serves the socket at `path`, and removes it in the end.
    pub fn unix(listener: UnixListener, router: Router, path: &Path) -> Self {
        Self::start(listener, router, Some(path.to_owned()))
    }

    fn start<L: Listener<Addr: std::fmt::Debug>>(listener: L, router: Router, socket: Option<PathBuf>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            // A dropped sender means the same as a sent word.
            let _ = stopped.await;
        };
        let serve = axum::serve(listener, router).with_graceful_shutdown(stopped);
        Self { stop, task: tokio::spawn(serve.into_future()), socket }
    }

    /// Takes no more connections and gives running requests a moment to end.
    pub async fn stop(mut self) {
        if let Some(path) = self.socket {
            // Whoever comes now shall find no host, not one that does not answer.
            let _ = fs::remove_file(path);
        }
        let _ = self.stop.send(());
        if tokio::time::timeout(GRACE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
