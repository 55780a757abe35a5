use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::lane::Lane;

/// A client that hangs up while its query runs: the query still works, so its place is not free.
#[test]
fn a_caller_that_is_gone_frees_no_place() {
    let service: Arc<dyn Service> = Arc::new(Fake::default());
    let lane = Lane::new("work", 1);
    let (started, has_started) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    runtime().block_on(async {
        let call = lane.run(&service, move |_| {
            let _ = started.send(());
            let _ = may_finish.recv();
            Ok(())
        });
        let gone = tokio::time::timeout(Duration::from_millis(20), call).await;
        assert!(gone.is_err(), "the caller gives up");
        has_started.recv().expect("it runs");
        assert_eq!(lane.free(), 0);
        finish.send(()).expect("it still runs");
        assert_eq!(lane.run(&service, |_| Ok(7)).await, Ok(7));
    });
}

#[test]
fn who_finds_no_place_is_told_so() {
    let service: Arc<dyn Service> = Arc::new(Fake::default());
    let lane = Lane::of("work", 0, Duration::from_millis(1));
    let asked = lane.run(&service, |_| Ok(()));
    let fault = runtime().block_on(asked).expect_err("no place");
    assert_eq!(crate::answer::status_of(&fault), 503);
    assert!(fault.message.contains("too many requests for work"), "{fault}");
}
