//! Samples, and rows of a Markdown table that say what was measured, what was hoped for, and by how much it was missed.

use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Durations of one thing, in microseconds.
#[derive(Debug, Default, Clone)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds one.
    pub fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1e6);
    }
    /// Measures one.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = work();
        self.push(start.elapsed());
        out
    }
    /// All of another.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// The value below which this share of all lies.
    pub fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get(((share * sorted.len() as f64) as usize).min(last)).copied().unwrap_or(f64::NAN)
    }
    /// The median.
    pub fn p50(&self) -> f64 {
        self.at(0.5)
    }
    /// The median of the ratios to another sample that was taken in turns with this one.
    pub fn over(&self, other: &Self) -> f64 {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect()).p50()
    }
}

/// A table in the making; every row is printed as soon as it is known.
pub struct Report {
    missed: Vec<String>,
    folders: Vec<TempDir>,
}

impl Report {
    /// Prints the head.
    pub fn begin() -> Self {
        println!("| what | p50 | p99 | goal (p50) | missed by |\n|---|---|---|---|---|");
        Self { missed: Vec::new(), folders: Vec::new() }
    }
    /// Keeps what a measurement has written until the end. On ext4 without a journal every new file passes over the inodes
    /// that were deleted in the last minutes: with a folder of thousands gone, files are made ten times slower.
    pub fn keep(&mut self, folder: TempDir) {
        self.folders.push(folder);
    }
    /// Durations, with a goal for the median in microseconds.
    pub fn durations(&mut self, what: &str, sample: &Sample, goal: Option<f64>) {
        let p50 = sample.p50();
        let (goal_text, missed) = match goal {
            Some(goal) if p50 <= goal => (format!("{} or less", micros(goal)), "met".to_owned()),
            Some(goal) => {
                let by = format!("{} ({:.0} %)", micros(p50 - goal), (p50 / goal - 1.0) * 100.0);
                (format!("{} or less", micros(goal)), by)
            }
            None => Default::default(),
        };
        let what = format!("{what} (n = {})", sample.len());
        self.row(&what, &micros(p50), &micros(sample.at(0.99)), &goal_text, &missed);
    }
    /// A ratio, with what it may be at most.
    pub fn ratio(&mut self, what: &str, ratio: f64, goal: Option<f64>) {
        let (goal_text, missed) = match goal {
            Some(goal) if ratio <= goal => (format!("{goal:.2}x or less"), "met".to_owned()),
            Some(goal) => (format!("{goal:.2}x or less"), format!("{:.3}x", ratio - goal)),
            None => Default::default(),
        };
        self.row(what, &format!("{ratio:.3}x"), "", &goal_text, &missed);
    }
    /// Anything else.
    pub fn figure(&mut self, what: &str, value: &str) {
        self.row(what, value, "", "", "");
    }
    fn row(&mut self, what: &str, p50: &str, p99: &str, goal: &str, missed: &str) {
        println!("| {what} | {p50} | {p99} | {goal} | {missed} |");
        if !missed.is_empty() && missed != "met" {
            self.missed.push(format!("- {what}: {p50}, goal {goal}, missed by {missed}"));
        }
    }
    /// Prints what misses its goal.
    pub fn end(&self) {
        match self.missed.as_slice() {
            [] => println!("\nNo goal is missed."),
            missed => println!("\nMissed:\n{}", missed.join("\n")),
        }
    }
}

/// A length of time in the unit that people read it in.
pub fn micros(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.1} us"),
    }
}
