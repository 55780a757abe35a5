//! The routes over real sockets, in front of a service that says what it was asked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod connection;
mod fake;
mod lane;
mod remote;
mod rest;
mod socket;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use serde_json::Value;
use weir_model::service::Service;

use crate::{Access, Api, Scrape, Serving, bind_tcp, router};
use fake::Fake;

fn scrape() -> Scrape {
    Arc::new(|| "# recorded\n".to_owned())
}

fn api(fake: &Arc<Fake>) -> Api {
    Api::new(Arc::clone(fake) as Arc<dyn Service>, scrape())
}

/// Serves a fake on a free loopback port while `ask` runs on a blocking thread.
fn over_tcp<T: Send + 'static>(fake: Fake, access: Access, ask: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    runtime().block_on(async {
        let listener = bind_tcp(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = Serving::tcp(listener, router(&api(&Arc::new(fake)), access));
        let answer = tokio::task::spawn_blocking(move || ask(address)).await;
        serving.stop().await;
        answer.expect("no panic")
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// An answer as it came.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
    fn fault(&self) -> String {
        let json = self.json();
        json["fault"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// One request by hand. `first` is such as `GET /healthz`; `more` are header lines.
fn request(address: SocketAddr, first: &str, more: &[&str], body: &str) -> Reply {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut text = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
    for line in more {
        text.push_str(line);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    Reply { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

const LOCAL: &str = "Host: localhost";
