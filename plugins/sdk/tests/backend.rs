//! A backend from outside of the crate, as a host's bench has one: the detector's code is the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::any::Any;
use std::rc::Rc;

use weir_sdk::backend::{self, FrameHandle, QueryCall, RuleCall, WriterHandle};
use weir_sdk::{
    Alarm, Batch, Blobs, Bounds, DataError, Decimals, Fault, Field, Kind, RowFault, RowRef, Severity, Time,
};

/// One column of ints.
struct Ints(Vec<i64>);

fn nothing<T>() -> Result<T, Fault> {
    Err(DataError::WrongKind(Kind::Int64).into())
}

impl backend::Frame for Ints {
    fn id(&self) -> u32 {
        7
    }
    fn rows(&self) -> u32 {
        self.0.len() as u32
    }
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("n", Kind::Int64)]
    }
    fn column(&self, name: &str) -> Option<u32> {
        (name == "n").then_some(0)
    }
    fn validity(&self, _: u32) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }
    fn int64s(&self, _: u32) -> Result<Vec<i64>, Fault> {
        Ok(self.0.clone())
    }
    fn booleans(&self, _: u32) -> Result<Vec<u8>, Fault> {
        nothing()
    }
    fn float64s(&self, _: u32) -> Result<Vec<f64>, Fault> {
        nothing()
    }
    fn timestamps(&self, _: u32) -> Result<Vec<i64>, Fault> {
        nothing()
    }
    fn decimals(&self, _: u32) -> Result<Decimals, Fault> {
        nothing()
    }
    fn blobs(&self, _: u32) -> Result<Blobs, Fault> {
        nothing()
    }
    fn texts(&self, _: u32) -> Result<Blobs, Fault> {
        Ok(self.0.iter().map(|n| n.to_string()).collect())
    }
    fn dictionary(&self, _: u32) -> Result<(Vec<u32>, Blobs), Fault> {
        nothing()
    }
    fn json(&self, _: &[u32]) -> Result<String, Fault> {
        nothing()
    }
    fn slice(&self, start: u32, count: u32) -> Result<FrameHandle, Fault> {
        let rows = self.0.get(start as usize..(start + count) as usize).ok_or(DataError::OutOfRange)?;
        Ok(Rc::new(Self(rows.to_vec())))
    }
    fn take(&self, rows: &[u32]) -> Result<FrameHandle, Fault> {
        Ok(Rc::new(Self(rows.iter().map(|row| self.0[*row as usize]).collect())))
    }
}

/// Doubles what a query is given.
#[derive(Default)]
struct Doubler(std::cell::RefCell<Vec<Alarm>>);

impl backend::Batch for Doubler {
    fn time(&self) -> i64 {
        60_000_000
    }
    fn input(&self, _: &str) -> Result<FrameHandle, Fault> {
        Ok(Rc::new(Ints(vec![1, 2, 3])))
    }
    fn query(&self, call: QueryCall<'_>) -> Result<FrameHandle, Fault> {
        let rows: &dyn Any = &**call.rows[0].1;
        let ints: &Ints = rows.downcast_ref().unwrap();
        Ok(Rc::new(Ints(ints.0.iter().map(|n| n * 2).collect())))
    }
    fn alarms(&self, alarms: Vec<Alarm>) -> Result<(), Fault> {
        self.0.borrow_mut().extend(alarms);
        Ok(())
    }
    fn window(&self, _: &str) -> Result<Bounds, Fault> {
        Err(DataError::Undeclared.into())
    }
    fn rule(&self, _: RuleCall<'_>) -> Result<(FrameHandle, Vec<RowFault>), Fault> {
        Err(DataError::Undeclared.into())
    }
    fn state_get(&self, _: Blobs) -> Result<(Vec<u8>, Blobs), Fault> {
        nothing()
    }
    fn state_put(&self, _: Blobs, _: Blobs, _: Option<u64>) -> Result<(), Fault> {
        nothing()
    }
    fn state_delete(&self, _: Blobs) -> Result<(), Fault> {
        nothing()
    }
    fn state_scan(&self, _: &[u8], _: Option<&[u8]>, _: u32) -> Result<(Blobs, Blobs), Fault> {
        nothing()
    }
    fn output(&self, name: &str) -> WriterHandle {
        panic!("nobody writes {name}")
    }
    fn scratch(&self, _: Vec<Field>) -> WriterHandle {
        panic!("nobody writes")
    }
    fn reject(&self, _: &[RowRef], _: &str) -> Result<(), Fault> {
        nothing()
    }
}

#[test]
fn a_detector_runs_on_a_backend_of_its_own() {
    let host = Rc::new(Doubler::default());
    let b = Batch::on(host.clone());
    let input = b.input("any").unwrap();
    let doubled = b.query("double").bind_rows("n", &input).run().unwrap();
    assert_eq!(doubled.int64s("n").unwrap().values(), [2, 4, 6]);
    assert_eq!(doubled.take(&[2, 0]).unwrap().texts("n").unwrap().get(0), Some("6"));
    assert_eq!(b.time(), Time::from_micros(60_000_000));
    b.alarms([Alarm::raise("a", ["k"], Severity::Info).because(doubled.row(1))]).unwrap();
    assert_eq!(host.0.borrow()[0].because, [RowRef { frame: 7, row: 1 }]);

    let fault = doubled.booleans("n").unwrap_err();
    assert_eq!(fault.to_string(), "column 'n' of query 'double': wrong kind: it is int64");
    assert_eq!(b.rule("1-1").run().err().unwrap().data(), Some(&DataError::Undeclared));
}
