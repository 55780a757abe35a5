#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use tempfile::TempDir;
use weir_model::NoFaults;
use weir_model::faultpoint::injected;
use weir_model::port::{Decode, Payload};
use weir_model::stream::{FileFormat, StreamDef};

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
    format: Format,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        let format = Format { format: FileFormat::JsonLines, delimiter: b',' };
        Self { dir, journal: Arc::default(), now: Time(1_000_000_000), format }
    }
    fn open_with(&self, from: u64, faults: Arc<dyn FaultPoints>) -> Result<Files, Fault> {
        let config = FilesConfig {
            folder: self.dir.path().join("in"),
            include: "*.{json,csv,parquet}".into(),
            settle: Duration::from_secs(2),
            spool: self.dir.path().join("spool"),
            format: self.format,
        };
        Files::open(config, &Offsets::of(0, from), self.journal.clone(), faults)
    }
    fn open(&self, from: u64) -> Files {
        self.open_with(from, Arc::new(NoFaults)).unwrap()
    }
    fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }
    fn write_bytes(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join("in").join(name), bytes).unwrap();
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
    assert!(
        fault.to_string().ends_with("; make it and let the host read it, or correct path under [source] of the stream")
    );
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

/// What becomes of a file's rows: a row's offset with the texts of its cells, or the reason that it has none.
impl World {
    fn decoded(&mut self, files: &mut Files, rows: usize) -> Vec<(u64, Result<String, String>)> {
        let def: StreamDef = toml::from_str(
            "event_time = \"at\"\n[schema]\nat = { type = \"timestamp\", required = true }\nhost = \"text\"\nn = \"int64\"\n\
             [source]\ntype = \"files\"\npath = \"in\"\n",
        )
        .unwrap();
        let decoder = crate::decode::Decoder::new(&def);
        let mut out = Vec::new();
        for _ in 0..3 {
            let limit = PollLimit { rows, bytes: usize::MAX };
            while let Some(polled) = files.poll(self.now, limit, Duration::ZERO).unwrap() {
                let (range, taken) = (polled.range, polled.taken);
                assert!(taken.is_some_and(|at| at <= self.now));
                let decoded = decoder.decode(polled).unwrap();
                assert_eq!((decoded.range, decoded.taken), (range, taken));
                let cell = |column: usize, row| {
                    arrow_cast::display::array_value_to_string(decoded.rows.column(column), row).unwrap()
                };
                for (row, offset) in decoded.offsets.iter().enumerate() {
                    out.push((*offset, Ok(format!("{}|{}", cell(1, row), cell(2, row)))));
                }
                out.extend(decoded.dead.into_iter().map(|d| (d.offset, Err(d.reason))));
            }
            self.now = self.now.plus(Duration::from_secs(3));
        }
        out.sort();
        out
    }
}

fn good(offset: u64, row: &str) -> (u64, Result<String, String>) {
    (offset, Ok(row.to_owned()))
}
fn bad(offset: u64, reason: &str) -> (u64, Result<String, String>) {
    (offset, Err(reason.to_owned()))
}

const AT: &str = "2026-01-31T12:00:00Z";

#[test]
fn csv_rows_are_found_by_the_header_and_bad_ones_name_the_column() {
    let mut w = World::new();
    w.format = Format { format: FileFormat::Csv, delimiter: b';' };
    let text =
        format!("\u{feff}n;note;host;at\r\n1;x;\"a;\"\"b\"\"\nc\";{AT}\r\n\r\n;;;{AT}\n1.5;x;h;{AT}\nx;{AT}\n7;x;h;\n");
    w.write_bytes("a.csv", &[text.as_bytes(), b"8;x;\xff;", AT.as_bytes(), b"\n9;x;last;", AT.as_bytes()].concat());
    // The last row has no end.
    w.write("a.csv.done", "");
    let expected = [
        good(0, "a;\"b\"\nc|1"),
        good(2, "|"),
        bad(3, "column n: expected int64, got the text \"1.5\""),
        bad(4, "it has 2 cells, and the header of its file has 4"),
        bad(5, "column at: a value is required, and it is null or missing"),
        bad(6, "not UTF-8 after byte 4"),
        good(7, "last|9"),
    ];
    for rows in [1, 2, 100] {
        let mut files = w.open(0);
        assert_eq!(w.decoded(&mut files, rows), expected);
    }
    // From the middle, as after a restart.
    let mut files = w.open(4);
    assert_eq!(w.decoded(&mut files, 2), expected[3..]);
}

#[test]
fn csv_that_has_grown_gives_what_was_appended_under_its_header() {
    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    w.write("a.csv", &format!("at,n\n{AT},1\n"));
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 9), [good(0, "|1")]);
    w.write("a.csv", &format!("at,n\n{AT},1\n{AT},2\n{AT},3\n"));
    assert_eq!(w.decoded(&mut files, 9), [good(1, "|2"), good(2, "|3")]);
    // Only a header, an empty file, and a header that lacks what is required.
    w.write("b.csv", "at,n\n");
    w.write("c.csv", "");
    w.write("d.csv", "n\n1\n");
    assert_eq!(w.decoded(&mut files, 9), [bad(3, "column at: a value is required, and it is null or missing")]);
    drop(files);
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 9).len(), 4, "empty files are no gap");
}

#[test]
fn a_csv_file_whose_header_cannot_be_read_is_one_dead_letter_and_empty_lines_are_no_header() {
    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    let blank = format!("\n \r\n\nat,n\n{AT},1\n");
    w.write("a.csv", &blank);
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 9), [good(0, "|1")]);
    w.write("a.csv", &format!("{blank}{AT},2\n"));
    assert_eq!(
        w.decoded(&mut files, 9),
        [good(1, "|2")],
        "what was appended is under the header, not under an empty line"
    );
    let utf16: Vec<u8> = format!("\u{feff}at,n\r\n{AT},3\r\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (file, bytes, reason) in [
        (
            "b.csv",
            format!("at,n\r{AT},3\r").into_bytes(),
            "its lines end with a carriage return alone; end them with a line feed",
        ),
        ("c.csv", utf16, "it is UTF-16; save it as UTF-8"),
        (
            "d.csv",
            format!("{},at,n\n,{AT},3\n", "x".repeat(2 << 20)).into_bytes(),
            "its header is longer than 1048576 bytes",
        ),
    ] {
        let mut w = World::new();
        w.format.format = FileFormat::Csv;
        w.write_bytes(file, &bytes);
        w.write(&format!("{file}.done"), "");
        let mut files = w.open(0);
        assert_eq!(w.decoded(&mut files, 9), [bad(0, &format!("the file cannot be read: {reason}"))]);
    }
}

#[test]
fn a_quote_that_is_never_closed_costs_lines_and_not_the_file() {
    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    let rows = |from: u32, to: u32| (from..to).map(|n| format!("{AT},h,{n}\n")).collect::<String>();
    // More after the quote than a record may have, so that it is not looked for in all of it.
    let text = format!("at,host,n\n{}{AT},\"open,2\n{}", rows(0, 2), rows(3, 50_000));
    assert!(text.len() > crate::decode::RECORD_BYTES + 100_000);
    w.write("a.csv", &text);
    let mut files = w.open(0);
    let got = w.decoded(&mut files, 1_000);
    assert_eq!(got.len(), 50_000);
    let dead: Vec<_> = got.iter().filter(|(_, row)| row.is_err()).cloned().collect();
    assert_eq!(dead, [bad(2, "cell 2: a quote is opened and not closed; double a quote inside of a cell")]);
    assert_eq!(got[49_999], good(49_999, "h|49999"));
    let mut again = w.open(40_000);
    assert_eq!(w.decoded(&mut again, 77), got[40_000..]);
}

/// Lines that open a quote each time anew would cost a look over the length of a record each, were it not bounded.
#[test]
fn quotes_that_are_opened_all_the_time_cost_linear_time() {
    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    w.write("a.csv", &format!("at,n\n{}", "\"a\",\"\n".repeat(300_000)));
    let mut files = w.open(0);
    let start = std::time::Instant::now();
    assert_eq!(w.decoded(&mut files, 10_000).len(), 300_000);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

fn parquet_of(columns: Vec<(&str, arrow_array::ArrayRef)>) -> Vec<u8> {
    let batch = arrow_array::RecordBatch::try_from_iter(columns).unwrap();
    let mut out = Vec::new();
    let properties = ::parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(700))
        .set_compression(::parquet::basic::Compression::SNAPPY)
        .build();
    let mut writer = ::parquet::arrow::ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    out
}

fn numbers(n: impl Iterator<Item = f64>) -> Vec<u8> {
    let n = arrow_array::Float64Array::from_iter_values(n);
    let host = arrow_array::StringArray::from_iter((0..n.len()).map(|i| (i % 3 > 0).then(|| format!("h{i}"))));
    let at = vec![1_769_860_800_000_i64; n.len()];
    let at = arrow_array::TimestampMillisecondArray::from(at);
    parquet_of(vec![
        ("n", Arc::new(n)),
        ("extra", Arc::new(host.clone())),
        ("host", Arc::new(host)),
        ("at", Arc::new(at)),
    ])
}

#[test]
fn parquet_rows_are_read_in_bounded_pieces_and_fitted_to_the_schema() {
    let mut w = World::new();
    w.format.format = FileFormat::Parquet;
    w.write_bytes("a.parquet", &numbers((0..2_000).map(f64::from)));
    w.write_bytes("b.parquet", &numbers([1.0, 2.5].into_iter()));
    let mut files = w.open(0);
    let limit = PollLimit { rows: 100, bytes: usize::MAX };
    w.now = w.now.plus(Duration::from_secs(3));
    assert!(files.poll(w.now, limit, Duration::ZERO).unwrap().is_none());
    w.now = w.now.plus(Duration::from_secs(3));
    let polled = files.poll(w.now, limit, Duration::ZERO).unwrap().unwrap();
    assert_eq!((polled.range.from, polled.range.to), (0, 100));
    drop(files);
    let mut files = w.open(0);
    let got = w.decoded(&mut files, 333);
    assert_eq!(got.len(), 2_002);
    assert_eq!(got[1_999], good(1_999, "h1999|1999"));
    assert_eq!(got[2_000..], [good(2_000, "|1"), bad(2_001, "column n: expected int64, got 2.5")]);
    let mut again = w.open(699);
    assert_eq!(w.decoded(&mut again, 10), got[699..]);
    // A type that no value can have costs the rows, not the stream.
    let (n, at) = (arrow_array::StringArray::from(vec!["1"]), arrow_array::StringArray::from(vec![AT]));
    w.write_bytes("c.parquet", &parquet_of(vec![("n", Arc::new(n)), ("at", Arc::new(at))]));
    assert_eq!(w.decoded(&mut again, 10), [bad(2_002, "column n: expected int64, got a column of type Utf8View")]);
    // A column without a type, as writers make it of nothing but nulls.
    let (n, at) = (arrow_array::NullArray::new(2), arrow_array::StringArray::from(vec![AT, AT]));
    w.write_bytes("d.parquet", &parquet_of(vec![("n", Arc::new(n)), ("at", Arc::new(at))]));
    assert_eq!(w.decoded(&mut again, 10), [good(2_003, "|"), good(2_004, "|")]);
}

#[test]
fn a_damaged_parquet_file_is_one_dead_letter_and_a_damaged_page_refuses_all_of_it() {
    let mut w = World::new();
    w.format.format = FileFormat::Parquet;
    let whole = numbers((0..2_000).map(f64::from));
    w.write_bytes("cut.parquet", &whole[..whole.len() - 20]);
    let mut files = w.open(0);
    let got = w.decoded(&mut files, 100);
    let [(0, Err(reason))] = got.as_slice() else { panic!("{got:?}") };
    assert!(reason.starts_with("the file cannot be read: "), "{reason}");
    // Somewhere in the data of the last row group: what comes before it must not be half of the file.
    let mut damaged = whole.clone();
    let at = whole.len() * 7 / 10;
    damaged[at..at + 400].fill(0xff);
    w.write_bytes("page.parquet", &damaged);
    let got = w.decoded(&mut files, 100);
    assert!(matches!(got.as_slice(), [(1, Err(_))]), "{} rows", got.len());
    assert_eq!(w.spooled(), 0);
    w.write_bytes("good.parquet", &whole);
    assert_eq!(w.decoded(&mut files, 1_000).len(), 2_000);
    drop(files);
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 1_000).len(), 2_002);
}

#[test]
fn bytes_that_were_read_under_another_name_are_one_dead_letter() {
    let mut w = World::new();
    w.write("a.json", "1\n2\n");
    let mut files = w.open(0);
    w.decoded(&mut files, 9);
    w.write("b.json", "1\n2\n");
    // Touched: the same file with another time.
    w.write("a.json", "1\n2\n");
    let expected = [bad(2, "duplicate: its bytes are those of a.json, which was taken before")];
    assert_eq!(w.decoded(&mut files, 9), expected);
    drop(files);
    let mut files = w.open(2);
    assert_eq!(w.decoded(&mut files, 9), expected);
    // The copy grows: what is new in it is read.
    w.write("b.json", "1\n2\n3\n");
    let got = w.decoded(&mut files, 9);
    assert_eq!((got.len(), got[0].0), (1, 3));
}

#[test]
fn an_empty_file_costs_nothing_and_is_no_gap_after_a_restart() {
    let mut w = World::new();
    w.write("a.json", "1\n");
    w.write("b.json", "");
    w.write("c.json", "\n");
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files), owned(&[(0, "1")]));
    drop(files);
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files), owned(&[(0, "1")]));
}

#[path = "files_growth_tests.rs"]
mod growth;
