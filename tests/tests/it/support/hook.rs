//! An HTTP server for webhooks that does what a script says.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// What the server does with a request.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    Status(u16),
    /// 429 with `Retry-After` in seconds.
    Busy(u64),
    /// Takes it and closes the connection without a word.
    Drops,
    /// Takes it and never answers, until the client gives up.
    Hangs,
    Redirects,
}

#[derive(Debug, Clone)]
pub struct Got {
    pub id: String,
    pub body: Value,
    pub token: Option<String>,
    pub path: String,
    /// The server did something with it.
    pub taken: bool,
}

/// A server that follows a script and then answers 204 to all.
pub struct Hook {
    pub address: SocketAddr,
    script: Arc<Mutex<VecDeque<Does>>>,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Hook {
    pub fn new(script: &[Does]) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script)
    }
    pub fn at(address: SocketAddr, script: &[Does]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let hook = Self {
            address: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(script.iter().copied().collect())),
            got: Arc::default(),
        };
        let (script, got) = (hook.script.clone(), hook.got.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, got) = (script.clone(), got.clone());
                std::thread::spawn(move || while serve(stream.as_ref().unwrap(), &script, &got) {});
            }
        });
        hook
    }
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
    /// Identities of what was taken, with how often.
    pub fn taken(&self) -> BTreeMap<String, usize> {
        let mut out = BTreeMap::new();
        for got in self.got().into_iter().filter(|g| g.taken) {
            *out.entry(got.id).or_default() += 1;
        }
        out
    }
}

/// One request. Answers whether the connection goes on.
fn serve(stream: &TcpStream, script: &Mutex<VecDeque<Does>>, got: &Mutex<Vec<Got>>) -> bool {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let found = head.iter().filter_map(|l| l.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.to_owned())
    };
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    let mut body = vec![0; header("content-length").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let does = script.lock().unwrap().pop_front().unwrap_or(Does::Status(204));
    let taken = matches!(does, Does::Status(200..=299) | Does::Drops | Does::Hangs);
    got.lock().unwrap().push(Got {
        id: header("idempotency-key").unwrap(),
        body: serde_json::from_slice(&body).unwrap(),
        token: header("authorization"),
        path: head[0].clone(),
        taken,
    });
    let mut stream = stream;
    let answer = match does {
        Does::Status(204) => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        Does::Status(code) => format!("HTTP/1.1 {code} X\r\ncontent-length: 9\r\n\r\nnot today"),
        Does::Busy(seconds) => format!("HTTP/1.1 429 X\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n"),
        Does::Redirects => "HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_owned(),
        Does::Drops => return false,
        Does::Hangs => {
            // Until the client closes.
            let _ = stream.read(&mut [0]);
            return false;
        }
    };
    stream.write_all(answer.as_bytes()).is_ok()
}
