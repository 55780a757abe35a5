use std::path::Path;

use weir_model::batch::BatchRecord;
use weir_model::fault::{Fault, FaultKind, Retry};
use weir_model::id::{BatchId, Digest, Name, RunKey, ScenarioId};
use weir_model::review::ReviewAsk;
use weir_model::service::Readiness;
use weir_model::{Span, Time};

use super::*;
use crate::api::SOCKET;
use crate::client::is_gone;
use crate::{RemoteService, bind_unix};

/// Serves a fake on a data folder's socket while `ask` runs on a blocking thread.
fn over_socket<T: Send + 'static>(
    fake: &Arc<Fake>,
    data: &Path,
    ask: impl FnOnce(&RemoteService) -> T + Send + 'static,
) -> T {
    let (socket, data) = (data.join(SOCKET), data.to_owned());
    runtime().block_on(async {
        let listener = bind_unix(&socket).await.expect("a socket");
        let serving = Serving::unix(listener, router(&api(fake), Access::Owner));
        let answer = tokio::task::spawn_blocking(move || {
            let host = RemoteService::find(&data).expect("no fault");
            ask(&host.expect("a host"))
        })
        .await;
        serving.stop().await;
        answer.expect("no panic")
    })
}

fn id() -> ScenarioId {
    "acme/s1".parse().expect("an id")
}
fn at() -> Time {
    "2026-11-30T12:01:00Z".parse().expect("a time")
}
fn acme() -> Name {
    Name::new("acme").expect("a name")
}

#[test]
fn every_call_goes_through_the_socket_and_back() {
    let data = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake::default());
    over_socket(&fake, data.path(), |host| {
        let after = [("acme/s1".to_owned(), BatchId(6))].into();
        let side = RunKey { scenario: id(), run: "side:x-1".parse().expect("a run") };
        assert_eq!(host.status(), Ok(fake::status()));
        assert_eq!(host.alarms(None, true).map(|a| a.len()), Ok(3));
        assert_eq!(host.alarms(Some(&id()), false), Ok(vec![fake::alarm("acme/s1")]));
        assert_eq!(host.events(&after, 9, 20), Ok(fake::events()));
        assert_eq!(host.query(&acme(), "select '%&?\"'"), Ok(fake::rows()));
        assert_eq!(host.ledger(&side, Some(BatchId(3)), 5), Ok(vec![fake::record()]));
        assert_eq!(host.ledger(&RunKey::live(id()), None, 5), Ok(vec![fake::record()]));
        assert_eq!(host.newest(&side, 3), Ok(vec![fake::record()]));
        assert_eq!(host.side(&id(), at(), true), Ok(fake::report()));
        let review = ReviewAsk { scenario: id(), at: Some(at()), latest: true, rows: 3 };
        assert_eq!(host.review(&review), Ok(fake::review()));
        assert_eq!(host.review(&ReviewAsk { at: None, ..review }), Ok(fake::review()));
        let backfill = fake::backfill();
        assert_eq!(host.backfill(&backfill).map(|p| (p.done, p.total, p.publish)), Ok((128, 720, true)));
        assert_eq!(host.history(&id()), Ok(fake::history()));
        assert_eq!(host.rollback(&id(), None), Ok(Digest::of(b"ruleset")));
        assert_eq!(host.rollback(&id(), Some(Digest::of(b"x"))), Ok(Digest::of(b"x")));
        assert_eq!(host.unpin(&id()), Ok(()));
        assert_eq!(host.forget(&id()), Ok(()));
        assert_eq!(host.resume(&id()), Ok(()));
        assert_eq!(host.pause(&id()), Ok(()));
        assert!(host.ready().ready);
    });
    let x = Digest::of(b"x").short();
    assert_eq!(
        fake.asked(),
        [
            "status",
            "alarms None true",
            "alarms Some(acme/s1) false",
            "events {\"acme/s1\": BatchId(6)} 9 20",
            "query acme select '%&?\"'",
            "ledger acme/s1@side:x-1 Some(BatchId(3)) 5",
            "ledger acme/s1@live None 5",
            "newest acme/s1@side:x-1 3",
            "side acme/s1 2026-11-30T12:01:00Z true",
            "review acme/s1 Some(\"2026-11-30T12:01:00Z\") true 3",
            "review acme/s1 None true 3",
            "backfill acme/s1 2026-11-30T00:00:00Z 2026-11-30T12:00:00Z 1m",
            "history acme/s1",
            "rollback acme/s1 None",
            &format!("rollback acme/s1 Some(\"{x}\")"),
            "unpin acme/s1",
            "forget acme/s1",
            "resume acme/s1",
            "pause acme/s1",
        ]
    );
}

#[test]
fn faults_come_back_whole() {
    let data = tempfile::tempdir().expect("a folder");
    let faults = [
        Fault::tenant(FaultKind::Sql, "no column x").file("q.sql").field("x").fix("name another"),
        Fault::tenant(FaultKind::NotReplayable, "beyond the horizon"),
        Fault::external(FaultKind::Sink, "no storage").retry(Retry::Never),
        Fault::host(FaultKind::Disk, "full"),
        Fault::internal("a defect").at(weir_model::Stage::Commit),
    ];
    for fault in faults {
        let fake = Arc::new(Fake::failing(fault.clone()));
        over_socket(&fake, data.path(), move |host| {
            assert_eq!(host.status(), Err(fault.clone()));
            assert_eq!(host.side(&id(), at(), false), Err(fault.clone()));
            assert_eq!(host.forget(&id()), Err(fault));
        });
    }
}

#[test]
fn a_host_that_is_not_ready_says_what_it_waits_for() {
    let data = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake { waiting: vec!["stream acme/syslog".to_owned()], ..Fake::default() });
    over_socket(&fake, data.path(), |host| {
        let expected = Readiness { ready: false, waiting: vec!["stream acme/syslog".to_owned()] };
        assert_eq!(host.ready(), expected);
    });
}

#[test]
fn a_large_ledger_page_and_a_long_query_pass() {
    let data = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake::default());
    over_socket(&fake, data.path(), |host| {
        let long = format!("select '{}'", "x".repeat(1 << 19));
        assert_eq!(host.query(&acme(), &long), Ok(fake::rows()));
        let too_long = "x".repeat(crate::api::MAX_REQUEST_BYTES + 1);
        let fault = host.query(&acme(), &too_long).expect_err("too long");
        assert!(fault.message.contains("length limit"), "{fault}");
        let all: Result<Vec<BatchRecord>, _> = host.ledger(&RunKey::live(id()), None, usize::MAX);
        assert!(all.is_ok());
    });
    assert!(fake.asked().contains(&"ledger acme/s1@live None 10000".to_owned()));
}

#[test]
fn a_panic_is_a_fault_and_the_host_goes_on() {
    let data = tempfile::tempdir().expect("a folder");
    over_socket(&Arc::new(Fake::default()), data.path(), |host| {
        let fault = host.query(&acme(), "panic").expect_err("a panic");
        assert_eq!(fault.kind, FaultKind::Internal);
        assert_eq!(host.query(&acme(), "select 1"), Ok(fake::rows()));
    });
}

#[test]
fn a_host_that_went_away_is_told_apart_from_a_fault() {
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().to_owned();
    let kept = over_socket(&Arc::new(Fake::default()), data.path(), move |_| {
        RemoteService::find(&path).expect("no fault").expect("a host")
    });
    let fault = kept.status().expect_err("nobody is there");
    assert!(is_gone(&fault), "{fault}");
    assert!(!kept.ready().ready);
    assert!(!is_gone(&Fault::host(FaultKind::Disk, "full")));
    assert_eq!(Span::secs(1).get(), std::time::Duration::from_secs(1));
}
