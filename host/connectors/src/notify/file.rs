//! A file of JSON lines, each message once: the last line says how far it is, and a line that was cut by a crash is written
//! anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir_model::notify::Message;
use weir_model::port::{Delivery, Notifier};
use weir_model::time::BoxFuture;
use weir_model::{Fault, FaultKind, Name};

/// A file this large is put aside, in the place of the one before it, and a new one begins.
const MOST_BYTES: u64 = 64 << 20;
/// Longer than any line.
const TAIL_BYTES: u64 = 1 << 20;

pub(super) struct LineFile(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    path: PathBuf,
    aside: PathBuf,
    most: u64,
    /// How long the file is and what it ends with, as far as we have written it.
    known: Mutex<Option<Known>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Known {
    length: u64,
    /// Identity of the last message.
    last: Option<String>,
}

impl LineFile {
    /// `NAME.jsonl` in a folder that is made when it is needed.
    pub fn new(folder: PathBuf, name: &Name) -> Self {
        Self::with_most(folder, name, MOST_BYTES)
    }

    fn with_most(folder: PathBuf, name: &Name, most: u64) -> Self {
        let (path, aside) = (folder.join(format!("{name}.jsonl")), folder.join(format!("{name}.1.jsonl")));
        Self(Arc::new(Inner { folder, path, aside, most, known: Mutex::new(None) }))
    }
}

impl Notifier for LineFile {
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Delivery> {
        let (inner, message) = (self.0.clone(), message.clone());
        Box::pin(async move {
            // Under way in a thread of its own: whoever drops this does not leave half a line.
            let written = tokio::task::spawn_blocking(move || inner.write(&message).map_err(|e| inner.fault(&e))).await;
            match written {
                Ok(Ok(())) => Delivery::Done,
                Ok(Err(fault)) => Delivery::Later { fault, after: None },
                Err(e) => Delivery::Later { fault: Fault::internal(e), after: None },
            }
        })
    }
}

impl Inner {
    fn write(&self, message: &Message) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken: after an error the file itself is asked again.
        let before = known.take();
        fs::create_dir_all(&self.folder)?;
        let is_new = !self.path.exists();
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&self.path)?;
        let length = file.metadata()?.len();
        let mut now = match before {
            Some(before) if before.length == length && !is_new => before,
            _ => self.look(&mut file)?,
        };
        if !is_after(message, now.last.as_deref()) {
            *known = Some(now);
            return Ok(());
        }
        if now.length >= self.most {
            fs::rename(&self.path, &self.aside)?;
            file = OpenOptions::new().create(true).read(true).append(true).open(&self.path)?;
            now.length = 0;
            sync_folder(&self.folder)?;
        }
        let line = format!("{}\n", message.json());
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        if is_new {
            sync_folder(&self.folder)?;
        }
        now.length += line.len() as u64;
        now.last = Some(message.id.clone());
        *known = Some(now);
        Ok(())
    }

    /// Cuts off a line that was not finished, and reads what the file ends with; one that has just begun goes on where the
    /// one before it ends.
    fn look(&self, file: &mut File) -> io::Result<Known> {
        let (length, last) = tail(file)?;
        file.set_len(length)?;
        let last = match last {
            None if length == 0 && self.aside.exists() => tail(&mut File::open(&self.aside)?)?.1,
            last => last,
        };
        Ok(Known { length, last })
    }

    fn fault(&self, e: &io::Error) -> Fault {
        Fault::host(FaultKind::Sink, format_args!("the file of a notification sink: {e}")).file(self.path.display())
    }
}

/// Length up to the end of the last whole line, and the identity in it.
fn tail(file: &mut File) -> io::Result<(u64, Option<String>)> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().rposition(|b| *b == b'\n') else {
        return Ok((if from == 0 { 0 } else { length }, None));
    };
    let start = bytes[..end].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let line: Option<serde_json::Value> = serde_json::from_slice(&bytes[start..end]).ok();
    let id = line.as_ref().and_then(|l| l.get("id")?.as_str()).map(str::to_owned);
    Ok((from + end as u64 + 1, id))
}

/// Whether a message comes after the last one that was written. One of another sender does.
fn is_after(message: &Message, last: Option<&str>) -> bool {
    let place = |id: &str| {
        let mut parts = id.rsplitn(3, '/');
        let index: u64 = parts.next()?.parse().ok()?;
        let batch: u64 = parts.next()?.parse().ok()?;
        Some((parts.next()?.to_owned(), batch, index))
    };
    match (place(&message.id), last.and_then(place)) {
        (Some((app, batch, index)), Some((before, n, i))) if app == before => (batch, index) > (n, i),
        _ => true,
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use weir_model::{BatchId, Time};

    use super::*;

    fn message(batch: u64, index: u32) -> Message {
        let body = serde_json::from_str(r#"{"change":"opened"}"#).unwrap();
        Message {
            id: format!("ledger/scenario/t/s@live#notify-x/{batch}/{index}"),
            time: Time::EPOCH,
            batch: BatchId(batch),
            index,
            body,
        }
    }

    fn file(folder: &Path) -> LineFile {
        LineFile::with_most(folder.join("t/s"), &Name::new("x").unwrap(), 400)
    }

    fn ids(folder: &Path, name: &str) -> Vec<String> {
        let text = fs::read_to_string(folder.join("t/s").join(name)).unwrap();
        text.lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["id"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn each_message_once_over_restarts_torn_lines_and_lost_replies() {
        let dir = tempfile::tempdir().unwrap();
        let one = file(dir.path());
        one.0.write(&message(1, 0)).unwrap();
        one.0.write(&message(1, 2)).unwrap();
        one.0.write(&message(1, 2)).unwrap();
        let again = file(dir.path());
        again.0.write(&message(1, 0)).unwrap();
        again.0.write(&message(1, 2)).unwrap();
        let path = dir.path().join("t/s/x.jsonl");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"id\":\"ledger/scen").unwrap();
        let third = file(dir.path());
        third.0.write(&message(2, 0)).unwrap();
        let expected = [message(1, 0).id, message(1, 2).id, message(2, 0).id];
        assert_eq!(ids(dir.path(), "x.jsonl"), expected);
        // The same host goes on after its own torn line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{").unwrap();
        third.0.write(&message(3, 0)).unwrap();
        assert_eq!(ids(dir.path(), "x.jsonl").len(), 4);
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_new_one_goes_on_where_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let one = file(dir.path());
        let line = format!("{}\n", message(1, 0).json()).len();
        let fit = 400_usize.div_ceil(line);
        (1..=fit as u64 + 1).for_each(|n| one.0.write(&message(n, 0)).unwrap());
        assert_eq!(ids(dir.path(), "x.1.jsonl").len(), fit);
        assert_eq!(ids(dir.path(), "x.jsonl"), [message(fit as u64 + 1, 0).id]);
        // It ends between the move and the first line of the new file.
        fs::write(dir.path().join("t/s/x.jsonl"), b"").unwrap();
        let again = file(dir.path());
        again.0.write(&message(fit as u64, 0)).unwrap();
        assert_eq!(ids(dir.path(), "x.jsonl"), Vec::<String>::new());
        again.0.write(&message(fit as u64 + 1, 0)).unwrap();
        assert_eq!(ids(dir.path(), "x.jsonl").len(), 1);
    }

    #[test]
    fn a_scenario_that_was_made_anew_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let one = file(dir.path());
        one.0.write(&message(9, 0)).unwrap();
        let mut other = message(1, 0);
        other.id = other.id.replace("ledger/scenario", "ledger/another");
        one.0.write(&other).unwrap();
        assert_eq!(ids(dir.path(), "x.jsonl"), [message(9, 0).id, other.id]);
    }
}
