//! What a tenant's hot windows may hold in memory: beyond it its streams are not read on, until rows have grown old.

use std::sync::Arc;
use std::time::Duration;

use weir_model::port::AdHoc;
use weir_model::service::Service;
use weir_model::{Clock, FaultKind, NoFaults, Time, VirtualClock, Whose};
use weir_pipeline::Host;
use weir_pipeline::host::Pace;

use crate::support::engines::open;
use crate::support::fakes::{CountingSources, OneScenario, name, quick_folder, summing};

const HOUR: Duration = Duration::from_secs(3600);

/// A row a second, kept for five minutes and a little more; each has four numbers of 28 bytes.
#[test]
fn a_tenant_whose_windows_are_full_is_read_on_when_rows_have_grown_old_and_nothing_is_lost() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = quick_folder();
    let clock = VirtualClock::new(Time(HOUR.as_micros() as i64));
    let store = OneScenario::new("", summing());
    let dyn_clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let (handle, sources) = (runtime.handle().clone(), Arc::new(CountingSources));
    let opened = open(dir.path(), dyn_clock, handle, Arc::new(NoFaults), sources, store.clone()).unwrap();
    let host_of = |window_bytes: u64| {
        let mut pace = Pace { window_bytes, ..Pace::default() };
        pace.poll.rows = 100;
        let host = Host::new(opened.host.engines.clone(), pace);
        host.reconcile().unwrap();
        host
    };
    let count = || {
        let rows =
            opened.lake.query(&name("t"), "select count(*) as n, count(distinct _offset) as d from events", Vec::new());
        let rows = weir_pipeline::output::objects(&rows.unwrap()).unwrap();
        (rows[0]["n"].as_u64().unwrap(), rows[0]["d"].as_u64().unwrap())
    };
    let host = host_of(30_000);
    let id = host.stream_ids().remove(0);
    // An hour is behind: 3,601 rows, of which 30,000 bytes hold fewer than 1,072.
    let mut refused = 0;
    let mut most = 0;
    while !matches!(host.ingest(&id).unwrap(), Ok(done) if done.at_end) {
        if let Err(fault) = host.ingest(&id).unwrap() {
            assert_eq!((fault.kind, fault.whose), (FaultKind::Resources, Whose::Tenant), "{fault}");
            assert_eq!(fault.field.as_deref(), Some("retention"));
            assert_eq!(host.status().unwrap().streams[0].fault.as_ref().map(|f| f.kind), Some(FaultKind::Resources));
            refused += 1;
            // What is in bronze and older than the retention leaves the window.
            host.flush(&id).unwrap().unwrap();
        }
        most = most.max(host.status().unwrap().streams[0].window_bytes);
        assert!(refused < 100, "it goes on");
    }
    // One read beyond: a hundred rows.
    assert!(refused >= 3 && most < 40_000, "{refused} times, {most} bytes");
    host.flush(&id).unwrap().unwrap();
    assert_eq!(count(), (3_601, 3_601), "each row once, none left out");
    drop(host);

    // A window that is full is there again after a restart.
    let host = host_of(10_000);
    let status = host.status().unwrap().streams.remove(0);
    assert!((10_000..20_000).contains(&status.window_bytes), "{status:?}");
    assert_eq!(host.ingest(&id).unwrap().unwrap_err().kind, FaultKind::Resources);
    drop(host);

    // A window that does not fit any more when it is read back: the stream is not opened, and says why.
    let host = host_of(1_000);
    let fault = host.status().unwrap().streams[0].fault.clone().unwrap();
    assert_eq!(fault.kind, FaultKind::Resources, "{fault}");
    assert!(fault.message.contains("ingest.window_bytes"), "{fault}");
}
