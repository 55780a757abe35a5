use std::net::SocketAddr;

use super::*;
use crate::Token;

const TOKEN: &str = "correct-horse-battery";

fn token() -> Token {
    Token::new(TOKEN).expect("a token")
}

#[test]
fn only_loopback_goes_without_a_token() {
    let of = |address: &str, token| {
        let address: SocketAddr = address.parse().expect("an address");
        Access::of(address, token)
    };
    assert!(matches!(of("127.0.0.1:1", None), Ok(Access::Loopback)));
    assert!(matches!(of("[::1]:1", None), Ok(Access::Loopback)));
    assert!(matches!(of("127.0.0.1:1", Some(token())), Ok(Access::Token(_))));
    assert!(matches!(of("0.0.0.0:1", Some(token())), Ok(Access::Token(_))));
    for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        let fault = of(open, None).expect_err("no token");
        assert_eq!(fault.field.as_deref(), Some("listen"));
        assert!(fault.to_string().contains("listen_token"), "{fault}");
    }
}

#[test]
fn a_token_is_never_shown_and_never_weak() {
    let shown = format!("{:?} {:?}", token(), Access::Token(token()));
    assert_eq!(shown, "Token(***) Token(Token(***))");
    for weak in ["", "tiny-token", "sixteen letters and blanks", "zeilen\numbruch-im-token"] {
        let why = Token::new(weak).expect_err(weak);
        assert!(weak.is_empty() || !why.contains(weak));
    }
}

#[test]
fn the_token_opens_everything_and_its_absence_only_health() {
    over_tcp(Fake::default(), Access::Token(token()), |at| {
        let good = format!("Authorization: Bearer {TOKEN}");
        let query = r#"{"tenant": "acme", "sql": "select 1"}"#;
        for header in ["X: y", "Authorization: Bearer wrong-horse-battery", "Authorization: Basic x"] {
            for first in ["GET /api/v1/status", "GET /metrics", "GET /nothing", "POST /api/v1/query"] {
                let reply = request(at, first, &["Host: weir.example", header], query);
                assert_eq!(reply.status, 401, "{first} with {header}");
                assert!(!reply.body.contains("acme"));
            }
        }
        assert_eq!(request(at, "GET /healthz", &["Host: x"], "").status, 200);
        let head = ["Host: weir.example", good.as_str()];
        assert_eq!(request(at, "GET /api/v1/status", &head, "").status, 200);
        assert_eq!(request(at, "POST /api/v1/query", &head, query).status, 200);
    });
}

#[test]
fn readiness_tells_a_stranger_no_names() {
    let waits = || Fake { waiting: vec!["stream acme/syslog".to_owned()], ..Fake::default() };
    over_tcp(waits(), Access::Token(token()), |at| {
        let stranger = request(at, "GET /readyz", &["Host: x"], "");
        assert_eq!((stranger.status, stranger.body.as_str()), (503, ""));
        let good = format!("Authorization: Bearer {TOKEN}");
        let known = request(at, "GET /readyz", &["Host: x", &good], "");
        assert_eq!(known.json()["waiting"][0], "stream acme/syslog");
    });
}

#[test]
fn loopback_shows_and_does_not_act() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        for first in [
            "GET /api/v1/status",
            "GET /api/v1/alarms",
            "GET /api/v1/scenarios/acme/s1/history",
            "GET /api/v1/scenarios/acme/s1/ledger",
        ] {
            assert_eq!(request(at, first, &[LOCAL], "").status, 200, "{first}");
        }
        let body = r#"{"tenant": "acme", "sql": "select 1", "at": "2026-11-30T12:01:00Z"}"#;
        for what in ["batch", "rollback", "unpin", "forget", "resume", "pause"] {
            let first = format!("POST /api/v1/scenarios/acme/s1/{what}");
            assert_eq!(request(at, &first, &[LOCAL], body).status, 403, "{what}");
        }
        let reply = request(at, "POST /api/v1/query", &[LOCAL], body);
        assert_eq!(reply.status, 403);
        assert!(reply.fault().contains("without a token"), "{}", reply.body);
    });
}

/// A page whose name was pointed at 127.0.0.1 reaches the port, but cannot hide its name.
#[test]
fn loopback_answers_only_to_its_own_names() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        let port = at.port();
        for good in [
            "localhost".to_owned(),
            format!("localhost:{port}"),
            format!("127.0.0.1:{port}"),
            "LOCALHOST".to_owned(),
            format!("[::1]:{port}"),
        ] {
            let reply = request(at, "GET /api/v1/status", &[&format!("Host: {good}")], "");
            assert_eq!(reply.status, 200, "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1", "[", ""] {
            for first in ["GET /api/v1/status", "GET /healthz"] {
                let reply = request(at, first, &[&format!("Host: {bad}")], "");
                assert_eq!(reply.status, 421, "{bad}");
            }
        }
    });
}
