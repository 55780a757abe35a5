use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use super::*;
use crate::api::SOCKET;
use crate::{RemoteService, bind_unix};

#[test]
fn a_folder_without_a_host_is_no_fault() {
    let data = tempfile::tempdir().expect("a folder");
    assert!(RemoteService::find(data.path()).expect("no fault").is_none());
    let missing = data.path().join("missing");
    assert!(RemoteService::find(&missing).expect("no fault").is_none());
}

#[test]
fn what_a_killed_host_left_is_seen_and_replaced() {
    let data = tempfile::tempdir().expect("a folder");
    let socket = data.path().join(SOCKET);
    drop(StdListener::bind(&socket).expect("a socket"));
    assert!(socket.exists(), "it stays behind");
    assert!(RemoteService::find(data.path()).expect("no fault").is_none());
    // Killed between making the socket and moving it.
    let unfinished = data.path().join("host.sock.new");
    std::fs::create_dir(&unfinished).expect("a folder");
    drop(StdListener::bind(unfinished.join("s")).expect("a socket"));

    runtime().block_on(async {
        let listener = bind_unix(&socket).await.expect("replaced");
        let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!unfinished.exists());
        let found = RemoteService::find(data.path()).expect("no fault");
        assert!(found.is_some());
        let serving = Serving::unix(listener, router(&api(&Arc::new(Fake::default())), Access::Owner));
        serving.stop().await;
        // A runtime may not be dropped inside of another one.
        tokio::task::spawn_blocking(move || drop(found)).await.expect("dropped");
    });
    assert!(!socket.exists(), "a host that ends takes its socket along");
}

#[test]
fn a_host_that_ends_leaves_the_socket_of_another_alone() {
    let data = tempfile::tempdir().expect("a folder");
    let socket = data.path().join(SOCKET);
    runtime().block_on(async {
        let api = api(&Arc::new(Fake::default()));
        let first = Serving::unix(bind_unix(&socket).await.expect("a socket"), router(&api, Access::Owner));
        // Somebody took the file away, and another host made its own there.
        std::fs::remove_file(&socket).expect("it was there");
        let second = Serving::unix(bind_unix(&socket).await.expect("a socket"), router(&api, Access::Owner));
        first.stop().await;
        assert!(socket.exists(), "it is the second one's");
        let found = RemoteService::find(data.path()).expect("no fault");
        assert!(found.is_some());
        second.stop().await;
        tokio::task::spawn_blocking(move || drop(found)).await.expect("dropped");
    });
    assert!(!socket.exists());
}

/// A socket's address holds about 100 bytes; a data folder's path may be longer.
#[test]
fn a_long_path_is_no_obstacle() {
    let data = tempfile::tempdir().expect("a folder");
    let long = data.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&long).expect("a folder");
    runtime().block_on(async {
        let listener = bind_unix(&long.join(SOCKET)).await.expect("a socket");
        let found = RemoteService::find(&long).expect("no fault");
        assert!(found.is_some());
        tokio::task::spawn_blocking(move || drop(found)).await.expect("dropped");
        drop(listener);
    });
}

#[test]
fn a_socket_that_cannot_be_made_names_its_place() {
    let data = tempfile::tempdir().expect("a folder");
    let socket = data.path().join("missing").join(SOCKET);
    let fault = runtime().block_on(bind_unix(&socket)).expect_err("no folder");
    assert!(fault.to_string().contains("missing/host.sock"), "{fault}");
}

#[test]
fn an_address_that_a_killed_host_still_holds_is_waited_for() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = held.local_addr().expect("its address");
    runtime().block_on(async {
        let next = tokio::spawn(bind_tcp(listen));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!next.is_finished(), "it is asked for again");
        drop(held);
        let bound = next.await.expect("no panic").expect("it is free now");
        let fault = bind_tcp(listen).await.expect_err("somebody else has it for good");
        assert!(fault.message.contains(&listen.to_string()) && fault.fix.is_some(), "{fault}");
        drop(bound);
    });
}
