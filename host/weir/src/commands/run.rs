//! `weir run`: build, announce, wait, stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use weir_model::fault::{Fault, FaultKind};
use weir_model::time::{BoxFuture, Clock};
use weir_server::{Access, Api, Scrape, Serving, api, bind_tcp, bind_unix, metrics, router};

use crate::cli::Run;
use crate::config::Config;
use crate::exit::Failure;
use crate::host::{RunningHost, Wiring};
use crate::print::Out;
use crate::signals::{self, Signal};

/// Histograms keep every observation until they are tidied.
const TIDY: Duration = Duration::from_secs(5);

pub(super) fn run(
    config: Arc<Config>,
    wiring: Arc<dyn Wiring>,
    clock: Arc<dyn Clock>,
    ask: &Run,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let (scrape, tidy) = metrics::install()?;
        tokio::spawn(async move {
            let mut every = tokio::time::interval(TIDY);
            loop {
                every.tick().await;
                tidy();
            }
        });
        let mut service = Session {
            listen: (!ask.once || ask.listen.is_some()).then_some(config.listen),
            config,
            once: ask.once,
            scrape,
            signals: signals::listen().map_err(Failure::Print)?,
            out,
        };
        service.run(wiring, clock).await
    });
    // Threads that are still in a plugin end with the process.
    runtime.shutdown_background();
    ended
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .enable_all()
        .thread_name("weir-io")
        // Blocking work runs on these too, and engines walk what tenants wrote, as deep as their checks allow.
        .thread_stack_size(8 << 20)
        .build()
        .map_err(|e| Fault::host(FaultKind::Resources, format_args!("no runtime: {e}")).into())
}

/// One life of a host.
pub(super) struct Session<'a, 'o> {
    pub(super) config: Arc<Config>,
    /// None: the socket alone is served.
    pub(super) listen: Option<SocketAddr>,
    pub(super) once: bool,
    pub(super) scrape: Scrape,
    pub(super) signals: mpsc::Receiver<Signal>,
    pub(super) out: &'a mut Out<'o>,
}

impl Session<'_, '_> {
    pub(super) async fn run(&mut self, wiring: Arc<dyn Wiring>, clock: Arc<dyn Clock>) -> Result<(), Failure> {
        // Before the host starts: an address that is taken costs nothing then.
        let tcp = match self.listen {
            Some(listen) => Some((bind_tcp(listen).await?, Access::of(listen, self.config.listen_token.clone())?)),
            None => None,
        };
        let (host, asked) = self.start(wiring, clock).await?;
        let ended = match asked {
            Some(_) => self.stop(&*host).await,
            None => self.serve(&*host, tcp).await,
        };
        // Dropped last: it holds the data folder, and a host that takes it over makes the socket anew.
        drop(host);
        ended
    }

    /// Starts the host. A signal meanwhile is answered as soon as it has started.
    async fn start(
        &mut self,
        wiring: Arc<dyn Wiring>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Box<dyn RunningHost>, Option<Signal>), Failure> {
        let (config, once) = (Arc::clone(&self.config), self.once);
        let starting = tokio::task::spawn_blocking(move || wiring.start(config, clock, once));
        let started = Box::pin(async move {
            starting.await.unwrap_or_else(|e| Err(Fault::internal(format_args!("the start panicked: {e}"))))
        });
        self.unless_signalled_twice(started, "starting; it stops as soon as it has started")
            .await
            .and_then(|(started, asked)| Ok((started?, asked)))
    }

    async fn serve(&mut self, host: &dyn RunningHost, tcp: Option<(TcpListener, Access)>) -> Result<(), Failure> {
        let api = Api::new(host.service(), Arc::clone(&self.scrape));
        let socket = self.config.data()?.join(api::SOCKET);
        let listener = match bind_unix(&socket).await {
            Ok(listener) => listener,
            Err(fault) => {
                self.stop(host).await?;
                return Err(fault.into());
            }
        };
        let mut serving = vec![Serving::unix(listener, router(&api, Access::Owner))];
        let mut address = None;
        if let Some((listener, access)) = tcp {
            address = listener.local_addr().ok();
            serving.push(Serving::tcp(listener, router(&api, access)));
        }
        // Nobody reads the announcement? That is no reason not to work.
        let _ = self.announce(address, &socket);
        let ended = self.work(host).await;
        let stopped = self.stop(host).await;
        if let Err(Failure::Signal(_)) = stopped {
            // At once: the socket stays behind, and the next host replaces it.
            return stopped;
        }
        for one in serving {
            one.stop().await;
        }
        ended.and(stopped)
    }

    fn announce(&mut self, address: Option<SocketAddr>, socket: &PathBuf) -> std::io::Result<()> {
        let url = address.map(|a| format!("http://{a}"));
        let (data, store) = (&self.config.data, &self.config.store);
        if self.out.json {
            return self.out.object(&json!({
                "listen": url, "socket": socket, "data": data, "store": store, "pid": std::process::id(),
            }));
        }
        let show = |path: &Option<PathBuf>| path.as_deref().unwrap_or("?".as_ref()).display().to_string();
        self.out.line(format_args!(
            "weir runs {} on {}{}; Ctrl-C stops it",
            show(store),
            show(data),
            url.map_or_else(String::new, |url| format!(", listening on {url}")),
        ))
    }

    /// Until it is asked to stop, has done all there was, or cannot go on.
    async fn work(&mut self, host: &dyn RunningHost) -> Result<(), Failure> {
        let drained = async {
            match self.once {
                true => host.drained().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(_) = self.signals.recv() => {
                let _ = self.out.note(format_args!("stopping; once more stops at once"));
                Ok(())
            }
            done = drained => Ok(done?),
            fault = host.failed() => Err(fault.into()),
        }
    }

    async fn stop(&mut self, host: &dyn RunningHost) -> Result<(), Failure> {
        let mut stopping = host.stop();
        tokio::select! {
            stopped = &mut stopping => Ok(stopped?),
            Some(second) = self.signals.recv() => Err(Failure::Signal(second.exit())),
        }
    }

    async fn unless_signalled_twice<T>(
        &mut self,
        mut work: BoxFuture<'static, T>,
        says: &str,
    ) -> Result<(T, Option<Signal>), Failure> {
        let mut first = None;
        loop {
            tokio::select! {
                done = &mut work => return Ok((done, first)),
                Some(signal) = self.signals.recv() => {
                    if first.replace(signal).is_some() {
                        return Err(Failure::Signal(signal.exit()));
                    }
                    let _ = self.out.note(format_args!("{says}"));
                }
            }
        }
    }
}
