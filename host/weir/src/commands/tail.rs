//! `weir tail`: follows alarms over restarts of the host. Where it is in the ledger is its only memory, so no change is
//! lost or printed twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::fault::Fault;
use weir_model::id::{BatchId, Incarnation};
use weir_model::service::{Service, Status};
use weir_model::time::Clock;
use weir_server::RemoteService;
use weir_server::client::is_gone;

use super::reach::{is_used, reach};
use crate::cli::Tail;
use crate::config::Config;
use crate::exit::Failure;
use crate::host::Wiring;
use crate::print::{Out, alarm};

/// How long one request waits for an alarm.
const WAIT: Duration = Duration::from_secs(20);
/// How often it is seen whether a host is there.
const LOOK: Duration = Duration::from_millis(300);
/// The most events of one answer.
const PAGE: usize = 1_000;

/// What following needs of the world.
pub(super) trait World {
    /// The host that runs, if one does.
    fn host(&self) -> Result<Option<Arc<dyn Service>>, Fault>;
    /// The host, or the folder itself.
    fn anybody(&self) -> Result<Arc<dyn Service>, Fault>;
    /// Whether a host has ever held the folder.
    fn is_used(&self) -> bool;
    /// Time since some start.
    fn elapsed(&self) -> Duration;
    /// Lets time pass.
    fn pause(&self, time: Duration);
}

/// The real one.
pub(super) struct Real<'a> {
    config: &'a Config,
    wiring: &'a dyn Wiring,
    clock: Arc<dyn Clock>,
}

impl<'a> Real<'a> {
    pub(super) fn new(config: &'a Config, wiring: &'a dyn Wiring, clock: Arc<dyn Clock>) -> Self {
        Self { config, wiring, clock }
    }
}

impl World for Real<'_> {
    fn host(&self) -> Result<Option<Arc<dyn Service>>, Fault> {
        let host = RemoteService::find(self.config.data()?)?;
        Ok(host.map(|h| Arc::new(h) as _))
    }
    fn anybody(&self) -> Result<Arc<dyn Service>, Fault> {
        reach(self.config, self.wiring, Arc::clone(&self.clock))
    }
    fn is_used(&self) -> bool {
        self.config.data().is_ok_and(is_used)
    }
    fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }
    fn pause(&self, time: Duration) {
        // A terminal that waits; tests wait on a clock of their own.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(time);
    }
}

/// Prints what there is and ends, or follows until the time is up or the process is.
pub(super) fn tail(ask: &Tail, world: &dyn World, out: &mut Out<'_>) -> Result<(), Failure> {
    let mut place = Place {
        // In a folder that nobody has held yet, everything is new.
        from_start: ask.from_start || ask.once || !world.is_used(),
        ledger: None,
        after: BTreeMap::new(),
        lines: alarm::Lines::new(out.zone, out.colour),
    };
    if ask.once {
        let service = world.anybody()?;
        place.arrive(&service.status()?);
        while place.print(&*service, Duration::ZERO, out)? > 0 {}
        return Ok(());
    }
    let end = ask.duration.map(|d| world.elapsed() + d.get());
    let left = || end.map_or(Duration::MAX, |end| end.saturating_sub(world.elapsed()));
    let mut told = false;
    while !left().is_zero() {
        let Some(service) = world.host()? else {
            if !told {
                out.note(format_args!("no host is running; waiting for one"))?;
                told = true;
            }
            world.pause(LOOK.min(left()));
            continue;
        };
        match follow(&mut place, &*service, &left, told, out) {
            Ok(()) => return Ok(()),
            Err(Failure::Fault(fault)) if is_gone(&fault) => {
                out.note(format_args!("the host is gone; waiting for it"))?;
                told = true;
                // It may still close its socket: do not ask again at once.
                world.pause(LOOK.min(left()));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn follow(
    place: &mut Place,
    service: &dyn Service,
    left: &dyn Fn() -> Duration,
    told: bool,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let another = place.arrive(&service.status()?);
    if told {
        out.note(format_args!("a host is running"))?;
    }
    if another {
        out.note(format_args!("it has another ledger; its alarms are shown from the start"))?;
    }
    while !left().is_zero() {
        place.print(service, WAIT.min(left()), out)?;
    }
    Ok(())
}

/// Where in the ledger it is.
struct Place {
    from_start: bool,
    ledger: Option<Incarnation>,
    after: BTreeMap<String, BatchId>,
    /// How wide its columns are by now.
    lines: alarm::Lines,
}

impl Place {
    /// At a host: the first time it finds its place; later it keeps it, unless the ledger is another one. Says whether
    /// it is.
    fn arrive(&mut self, status: &Status) -> bool {
        self.lines.expect(status.scenarios.iter().map(|s| format!("{}/{}", s.tenant, s.scenario)));
        let before = self.ledger.replace(status.ledger.clone());
        match before {
            None if self.from_start => {}
            None => {
                let scenarios = status.scenarios.iter();
                self.after = scenarios
                    .filter_map(|s| {
                        let id = format!("{}/{}", s.tenant, s.scenario);
                        Some((id, s.last_batch.as_ref()?.id))
                    })
                    .collect();
            }
            Some(before) if before == status.ledger => {}
            Some(_) => {
                self.after.clear();
                return true;
            }
        }
        false
    }

    /// Prints what comes next and moves on. Says how much it was.
    fn print(&mut self, service: &dyn Service, wait: Duration, out: &mut Out<'_>) -> Result<usize, Failure> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let page = service.events(&self.after, PAGE, wait_ms)?;
        if out.json {
            for event in &page.events {
                out.object(event)?;
            }
        } else {
            out.stdout.write_all(self.lines.text(&page.events).as_bytes())?;
        }
        out.stdout.flush()?;
        self.after.extend(page.next);
        Ok(page.events.len())
    }
}
