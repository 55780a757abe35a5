//! A plugin's log: what it writes by `log`, to stdout and to stderr, bounded in lines and bytes.

use weir_model::Limits;
use weir_model::port::LogLine;

/// A line that never ends is cut here, so that no more than this is buffered for it.
const LINE_BYTES: usize = 8 * 1024;

/// Where a guest can write without calling `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    /// Lines of level info.
    Out,
    /// Lines of level error.
    Err,
}

impl Standard {
    fn level(self) -> &'static str {
        match self {
            Self::Out => "info",
            Self::Err => "error",
        }
    }
}

/// Lines so far. Too many of them are dropped and counted: a chatty plugin is no broken one.
#[derive(Debug)]
pub struct Log {
    lines: Vec<LogLine>,
    bytes: u64,
    max_lines: u64,
    max_bytes: u64,
    dropped: u64,
    unfinished: [Vec<u8>; 2],
}

impl Log {
    /// Empty.
    pub fn new(limits: &Limits) -> Self {
        Self {
            lines: Vec::new(),
            bytes: 0,
            max_lines: limits.log_lines,
            max_bytes: limits.log_bytes,
            dropped: 0,
            unfinished: [Vec::new(), Vec::new()],
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
        self.dropped = 0;
        self.unfinished.iter_mut().for_each(Vec::clear);
    }

    /// Adds a line.
    pub fn line(&mut self, level: &'static str, message: String) {
        let bytes = self.bytes + message.len() as u64;
        if self.dropped > 0 || self.lines.len() as u64 >= self.max_lines || bytes > self.max_bytes {
            self.dropped += 1;
            return;
        }
        self.bytes = bytes;
        self.lines.push(LogLine { level, message });
    }

    /// Adds bytes of a standard stream; they become lines at their ends.
    pub fn write(&mut self, stream: Standard, bytes: &[u8]) {
        let mut pending = std::mem::take(&mut self.unfinished[stream as usize]);
        for &byte in bytes {
            let end = byte == b'\n';
            if !end {
                pending.push(byte);
            }
            if end || pending.len() >= LINE_BYTES {
                self.bytes_line(stream, &pending);
                pending.clear();
            }
        }
        self.unfinished[stream as usize] = pending;
    }

    fn bytes_line(&mut self, stream: Standard, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if !text.trim().is_empty() {
            self.line(stream.level(), text.into_owned());
        }
    }

    /// All lines, unfinished ones among them; the last one counts those that were dropped.
    pub fn finish(mut self) -> Vec<LogLine> {
        self.flush();
        if self.dropped > 0 {
            self.lines.push(LogLine { level: "warn", message: format!("{} more lines were dropped", self.dropped) });
        }
        self.lines
    }

    /// Ends unfinished lines.
    pub fn flush(&mut self) {
        for stream in [Standard::Out, Standard::Err] {
            let pending = std::mem::take(&mut self.unfinished[stream as usize]);
            self.bytes_line(stream, &pending);
        }
    }

    /// The newest line, if it is an error.
    pub fn last_error(&self) -> Option<&str> {
        self.lines.last().filter(|line| line.level == "error").map(|line| line.message.as_str())
    }

    /// The last lines in one text, for the message of a fault: usually what a panic wrote before it trapped.
    pub fn tail(&self) -> Option<String> {
        const LINES: usize = 3;
        const BYTES: usize = 600;
        let said: Vec<&str> = self
            .lines
            .iter()
            .rev()
            .map(|line| line.message.trim())
            .filter(|text| !text.starts_with("note: run with `RUST_BACKTRACE"))
            .take(LINES)
            .collect();
        let text = said.into_iter().rev().collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then(|| cut(&text, BYTES).to_owned())
    }
}

/// The text, or as much of its beginning as has at most `bytes` bytes and ends between two characters.
pub fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: u64, bytes: u64) -> Log {
        Log::new(&Limits { log_lines: lines, log_bytes: bytes, ..Limits::defaults() })
    }
    fn texts(log: Log) -> Vec<String> {
        log.finish().into_iter().map(|l| l.message).collect()
    }

    #[test]
    fn bytes_become_lines_and_the_last_needs_no_end() {
        let mut l = log(10, 1_000);
        l.write(Standard::Out, b"one\ntw");
        l.write(Standard::Err, b"oops\n\n");
        l.write(Standard::Out, b"o\nthree");
        assert_eq!(texts(l), ["one", "oops", "two", "three"]);
    }

    #[test]
    fn what_is_too_much_is_counted_in_one_last_line() {
        let mut l = log(2, 1_000);
        (0..5).for_each(|i| l.line("info", format!("line {i}")));
        assert_eq!(texts(l), ["line 0", "line 1", "3 more lines were dropped"]);
        let mut l = log(100, 10);
        l.line("info", "123456".into());
        l.line("info", "123456".into());
        l.line("info", "1".into());
        assert_eq!(texts(l), ["123456", "2 more lines were dropped"]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let mut l = log(10, 1_000_000);
        l.write(Standard::Out, &vec![b'x'; LINE_BYTES * 2 + 1]);
        assert_eq!(texts(l).iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES, LINE_BYTES, 1]);
    }

    #[test]
    fn the_last_error_is_the_newest_line_or_none() {
        let mut l = log(10, 1_000);
        assert_eq!(l.last_error(), None);
        l.line("error", "column 'n' of query 'q': no such column".into());
        assert_eq!(l.last_error(), Some("column 'n' of query 'q': no such column"));
        l.line("info", "went on".into());
        assert_eq!(l.last_error(), None, "what came before is about something else");
    }

    #[test]
    fn the_tail_is_what_a_panic_said() {
        let mut l = log(10, 1_000);
        l.write(Standard::Err, b"\nthread '<unnamed>' panicked at src/lib.rs:3:5:\nno such olt\nnote: run with `RUST_BACKTRACE=1` environment variable\n");
        assert_eq!(l.tail().expect("said something"), "thread '<unnamed>' panicked at src/lib.rs:3:5: no such olt");
    }
}
