//! Listeners: a TCP address, and the socket in the data folder.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use weir_model::fault::{Fault, FaultKind};

use crate::connection::{Bounds, serve};

/// How long requests may take that run when the listener closes. A follower waits longer than this; it asks again.
const GRACE: Duration = Duration::from_millis(500);
/// The longest path that a socket address holds, everywhere (macOS; Linux has four more).
const MAX_SOCKET_PATH: usize = 103;
/// What the system keeps of an answer on its way (Linux doubles it). Only when a third of it is free may more be written, and
/// that must not take a slow reader longer than a connection may stall: the megabytes that a buffer grows to on its own would.
const SEND_BUFFER: u32 = 128 << 10;
/// How long an address may be in use. A host that was killed holds its own until its threads have come back from the disk, and
/// whoever starts the next one has seen the kill long before.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that the system accepts for us meanwhile.
const BACKLOG: u32 = 1024;

/// Listens on an address. One that is in use is asked for again for a while.
pub async fn bind_tcp(listen: SocketAddr) -> Result<TcpListener, Fault> {
    let begun = Instant::now();
    loop {
        match listener(listen) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => sleep(PATIENCE / 100).await,
            bound => {
                return bound.map_err(|e| {
                    Fault::host(FaultKind::Config, format_args!("cannot listen on {listen}: {e}"))
                        .field("listen")
                        .fix("choose another address with --listen, or end the process that has it")
                });
            }
        }
    }
}

fn listener(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A host that was started again must not wait for what is left of old connections.
    socket.set_reuseaddr(true)?;
    // Its connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

/// Listens on a socket that only this user can open. Replaces one that a killed host left behind, so the caller must
/// hold the data folder: two hosts on one folder would take the socket from each other.
pub async fn bind_unix(path: &Path) -> Result<Socket, Fault> {
    private_socket(path).map_err(|e| {
        Fault::host(FaultKind::Disk, format_args!("cannot make the socket: {e}"))
            .file(path.display())
            .fix("the data folder must be on a local file system and writable for this user")
    })
}

/// Made in a folder that nobody else can enter, then moved: there is no moment when others could connect.
fn private_socket(path: &Path) -> io::Result<Socket> {
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
    let identity = identity(&inside)?;
    fs::rename(&inside, path)?;
    fs::remove_dir(&folder)?;
    Ok(Socket { listener, place: Place { path: path.to_owned(), identity } })
}

/// A socket that listens.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    place: Place,
}

/// Where a socket was made, and which one it is.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    /// Removes the socket, unless another one has come to its place. The listener must still be open: as long as it is,
    /// no other file gets the number of its inode.
    fn clear(&self) {
        if identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
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
    task: JoinHandle<()>,
    place: Option<Place>,
}

impl Serving {
    /// Serves an address.
    pub fn tcp(listener: TcpListener, router: Router) -> Self {
        Self::start(listener, router, None, Bounds::default())
    }
    /// Serves a socket, and removes it in the end.
    pub fn unix(socket: Socket, router: Router) -> Self {
        Self::start(socket.listener, router, Some(socket.place), Bounds::default())
    }

    /// Serves an address with bounds of a test's own.
    #[cfg(test)]
    pub(crate) fn bounded(listener: TcpListener, router: Router, bounds: Bounds) -> Self {
        Self::start(listener, router, None, bounds)
    }

    fn start<L: Listener>(listener: L, router: Router, place: Option<Place>, bounds: Bounds) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            // A dropped sender means the same as a sent word.
            let _ = stopped.await;
        };
        Self { stop, task: tokio::spawn(serve(listener, router, bounds, stopped)), place }
    }

    /// Takes no more connections and gives running requests a moment to end.
    pub async fn stop(mut self) {
        if let Some(place) = self.place {
            // Whoever comes now shall find no host, not one that does not answer.
            place.clear();
        }
        let _ = self.stop.send(());
        if tokio::time::timeout(GRACE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
