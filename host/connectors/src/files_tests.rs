#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use tempfile::TempDir;
use weir_model::NoFaults;
use weir_model::faultpoint::injected;

use super::*;

#[derive(Default)]
struct Memory(Mutex<BTreeMap<u64, Vec<u8>>>);
impl Journal for Memory {
    fn entries(&self) -> Result<Vec<(u64, Vec<u8>)>, Fault> {
        Ok(self.0.lock().unwrap().clone().into_iter().collect())
    }
    fn put(&self, number: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.0.lock().unwrap().insert(number, bytes.to_vec());
        Ok(())
    }
    fn remove(&self, number: u64) -> Result<(), Fault> {
        self.0.lock().unwrap().remove(&number);
        Ok(())
    }
}

struct World {
    dir: TempDir,
    journal: Arc<Memory>,
    now: Time,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        Self { dir, journal: Arc::default(), now: Time(1_000_000_000) }
    }
    fn open_with(&self, from: u64, faults: Arc<dyn FaultPoints>) -> Result<Files, Fault> {
        let config = FilesConfig {
            folder: self.dir.path().join("in"),
            include: "*.json".into(),
            settle: Duration::from_secs(2),
            spool: self.dir.path().join("spool"),
        };
        Files::open(config, &Offsets::of(0, from), self.journal.clone(), faults)
    }
    fn open(&self, from: u64) -> Files {
        self.open_with(from, Arc::new(NoFaults)).unwrap()
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join("in").join(name), text).unwrap();
    }
    fn spooled(&self) -> usize {
        fs::read_dir(self.dir.path().join("spool")).unwrap().count()
    }
    /// All lines that come when nothing changes for a while, as (offset, text).
    fn read(&mut self, files: &mut Files) -> Vec<(u64, String)> {
        let mut out = Vec::new();
        for _ in 0..3 {
            loop {
                let limit = PollLimit { rows: 2, bytes: usize::MAX };
                let Some(polled) = files.poll(self.now, limit, Duration::ZERO).unwrap() else { break };
                let Payload::Records(records) = polled.payload else { panic!("rows") };
                out.extend(records.into_iter().map(|r| (r.offset, String::from_utf8(r.value.to_vec()).unwrap())));
            }
            self.now = self.now.plus(Duration::from_secs(3));
        }
        assert!(files.at_end());
        out
    }
}

fn owned(lines: &[(u64, &str)]) -> Vec<(u64, String)> {
    lines.iter().map(|(o, l)| (*o, (*l).to_owned())).collect()
}

#[test]
fn each_file_is_read_once_with_durable_ordinals() {
    let mut w = World::new();
    w.write("a.json", "1\n2\n3\n");
    w.write("ignored.txt", "x\n");
    w.write("half.json.tmp", "x\n");
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files), owned(&[(0, "1"), (1, "2"), (2, "3")]));
    w.write("b.json", "4\n\n5");
    assert_eq!(w.read(&mut files), owned(&[(3, "4"), (5, "5")]));
    assert_eq!(w.read(&mut files), []);
    drop(files);
    let mut again = w.open(1);
    assert_eq!(w.read(&mut again), owned(&[(1, "2"), (2, "3"), (3, "4"), (5, "5")]));
}

#[test]
fn a_file_that_is_still_written_is_waited_for() {
    let w = World::new();
    let mut files = w.open(0);
    let limit = PollLimit { rows: 10, bytes: usize::MAX };
    let mut now = w.now;
    for text in ["1\n", "1\n2\n", "1\n2\n3\n"] {
        w.write("a.json", text);
        assert!(files.poll(now, limit, Duration::ZERO).unwrap().is_none(), "after {text:?}");
        now = now.plus(Duration::from_millis(1_900));
    }
    assert!(files.poll(now, limit, Duration::ZERO).unwrap().is_none());
    now = now.plus(Duration::from_secs(2));
    assert_eq!(files.poll(now, limit, Duration::ZERO).unwrap().unwrap().range.to, 3);
}

#[test]
fn a_done_marker_needs_no_waiting() {
    let w = World::new();
    let mut files = w.open(0);
    w.write("a.json", "1\n");
    w.write("a.json.done", "");
    let limit = PollLimit { rows: 10, bytes: usize::MAX };
    assert_eq!(files.poll(w.now, limit, Duration::ZERO).unwrap().unwrap().range.to, 1);
}

#[test]
fn rows_come_from_the_spool_when_the_file_is_gone_and_leave_it_when_released() {
    let mut w = World::new();
    w.write("a.json", "1\n2\n");
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files).len(), 2);
    fs::remove_file(w.dir.path().join("in/a.json")).unwrap();
    drop(files);
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files), owned(&[(0, "1"), (1, "2")]));
    assert_eq!(w.spooled(), 1);
    files.release(&Offsets::of(0, 1)).unwrap();
    assert_eq!(w.spooled(), 1);
    files.release(&Offsets::of(0, 2)).unwrap();
    assert_eq!(w.spooled(), 0);
    drop(files);
    let gap = w.open_with(0, Arc::new(NoFaults)).err().unwrap();
    assert_eq!(gap.kind, FaultKind::Gap);
    w.write("a.json", "1\n2\n");
    let mut files = w.open(2);
    w.write("b.json", "3\n");
    let lines = w.read(&mut files);
    assert_eq!(lines.last().unwrap().1, "3");
}

#[test]
fn a_file_that_has_grown_gives_only_what_was_appended() {
    let mut w = World::new();
    w.write("a.json", "1\n2\n");
    let mut files = w.open(0);
    w.read(&mut files);
    w.write("a.json", "1\n2\n3\n4\n");
    assert_eq!(w.read(&mut files), owned(&[(2, "3"), (3, "4")]));
    w.write("a.json", "9\n2\n3\n4\n5\n");
    assert_eq!(w.read(&mut files), owned(&[(4, "9"), (5, "2"), (6, "3"), (7, "4"), (8, "5")]));
}

#[test]
fn a_line_too_long_for_a_record_costs_one_offset_and_bounded_memory() {
    let mut w = World::new();
    w.write("a.json", &format!("1\n{}\n3\n", "x".repeat(10 << 20)));
    let mut files = w.open(0);
    let lines = w.read(&mut files);
    assert_eq!((lines.len(), lines[1].0, lines[2].clone()), (3, 1, (2, "3".to_owned())));
    assert!(lines[1].1.len() > crate::decode::RECORD_BYTES && lines[1].1.len() < crate::decode::RECORD_BYTES + 10);
}

#[test]
fn a_folder_that_cannot_be_read_is_a_fault_of_the_source_and_passes() {
    let mut w = World::new();
    w.write("a.json", "1\n");
    let mut files = w.open(0);
    fs::rename(w.dir.path().join("in"), w.dir.path().join("away")).unwrap();
    let limit = PollLimit { rows: 10, bytes: usize::MAX };
    let fault = files.poll(w.now, limit, Duration::ZERO).unwrap_err();
    assert_eq!((fault.whose, fault.kind), (weir_model::Whose::External, FaultKind::Source));
    fs::rename(w.dir.path().join("away"), w.dir.path().join("in")).unwrap();
    assert_eq!(w.read(&mut files).len(), 1);
}

/// Ends the host at the n-th pass of any point.
#[derive(Debug)]
struct Nth(Mutex<u32>);
impl FaultPoints for Nth {
    fn pass(&self, point: &'static str) -> Result<(), Fault> {
        let mut left = self.0.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 { Err(injected(point)) } else { Ok(()) }
    }
}

#[test]
fn ending_before_or_after_the_journal_loses_and_doubles_nothing() {
    for at in 1..=4 {
        let mut w = World::new();
        w.write("a.json", "1\n2\n");
        w.write("b.json", "3\n");
        let mut files = w.open_with(0, Arc::new(Nth(Mutex::new(at)))).unwrap();
        let limit = PollLimit { rows: 10, bytes: usize::MAX };
        let mut ended = false;
        for _ in 0..6 {
            ended |= files.poll(w.now, limit, Duration::ZERO).is_err_and(|f| f.kind == FaultKind::Injected);
            w.now = w.now.plus(Duration::from_secs(3));
        }
        assert!(ended, "no end at pass {at}");
        drop(files);
        let mut files = w.open(0);
        let lines: Vec<String> = w.read(&mut files).into_iter().map(|(_, l)| l).collect();
        assert_eq!(lines, ["1", "2", "3"], "ended at pass {at}");
    }
}
