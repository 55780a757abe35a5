//! How large rows are, without making them.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType as D;

/// Bytes that a batch's rows take, not counting what its buffers hold beyond them.
pub fn of_batch(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|c| of_array(c)).sum()
}

/// Bytes that an array's rows take.
pub fn of_array(array: &dyn Array) -> u64 {
    let nulls = array.nulls().map_or(0, |n| n.len().div_ceil(8) as u64);
    let shared = match array.data_type() {
        D::Dictionary(..) => of_array(array.as_any_dictionary().values()),
        _ => 0,
    };
    nulls + shared + of_range(array, 0, array.len())
}

/// Bytes that a copy of some rows would take. Rows may repeat, so this can be far more than the array itself.
pub fn of_rows(array: &dyn Array, rows: &[u32]) -> u64 {
    match fixed_width(array.data_type()) {
        Some(width) => width * rows.len() as u64,
        None => rows.iter().map(|&r| of_range(array, r as usize, r as usize + 1)).sum(),
    }
}

fn fixed_width(ty: &D) -> Option<u64> {
    Some(match ty {
        D::Null => 0,
        D::Boolean => 1,
        D::FixedSizeBinary(width) => u64::try_from(*width).unwrap_or(0),
        D::Dictionary(key, _) => fixed_width(key)?,
        other => other.primitive_width()? as u64,
    })
}

/// Bytes of rows `start..end`. Constant time but for views, whatever the length: values of a range lie side by side.
fn of_range(array: &dyn Array, start: usize, end: usize) -> u64 {
    let rows = (end - start) as u64;
    if let Some(width) = fixed_width(array.data_type()) {
        return width * rows;
    }
    macro_rules! offsets {
        ($array:expr) => {{
            let offsets = $array.value_offsets();
            (offsets[start] as usize, offsets[end] as usize)
        }};
    }
    macro_rules! bytes {
        ($array:expr, $offset:expr) => {{
            let (from, to) = offsets!($array);
            (to - from) as u64 + $offset * rows
        }};
    }
    macro_rules! items {
        ($array:expr, $offset:expr) => {{
            let (from, to) = offsets!($array);
            of_range($array.values(), from, to) + $offset * rows
        }};
    }
    // The lower half of a view is the length of its value.
    macro_rules! views {
        ($array:expr) => {
            $array.views()[start..end].iter().map(|v| 16 + u64::from(*v as u32)).sum()
        };
    }
    match array.data_type() {
        D::Utf8 => bytes!(array.as_string::<i32>(), 4),
        D::LargeUtf8 => bytes!(array.as_string::<i64>(), 8),
        D::Binary => bytes!(array.as_binary::<i32>(), 4),
        D::LargeBinary => bytes!(array.as_binary::<i64>(), 8),
        D::Utf8View => views!(array.as_string_view()),
        D::BinaryView => views!(array.as_binary_view()),
        D::List(_) => items!(array.as_list::<i32>(), 4),
        D::LargeList(_) => items!(array.as_list::<i64>(), 8),
        D::Map(..) => {
            let map = array.as_map();
            let (from, to) = offsets!(map);
            of_range(map.entries(), from, to) + 4 * rows
        }
        D::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            of_range(array.as_fixed_size_list().values(), start * width, end * width)
        }
        D::Struct(_) => array.as_struct().columns().iter().map(|c| of_range(c, start, end)).sum(),
        // Unions, run ends and list views do not come out of SQL over streams; an average is good enough for them.
        _ => (array.get_array_memory_size() as u64 / (array.len() as u64).max(1) + 1) * rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Int32Type;
    use arrow_array::{Int64Array, ListArray, StringArray, StringViewArray, StructArray};
    use arrow_schema::Field;
    use std::sync::Arc;

    #[test]
    fn a_slice_is_charged_for_its_own_rows() {
        let all = StringArray::from(vec!["aaaa", "bb", "", "cccccc"]);
        assert_eq!(of_array(&all), 12 + 16);
        assert_eq!(of_array(&all.slice(1, 2)), 2 + 8);
        assert_eq!(of_array(&Int64Array::from(vec![1, 2, 3])), 24);
    }

    #[test]
    fn repeated_rows_count_each_time() {
        let texts = StringArray::from(vec!["x".repeat(100), String::new()]);
        assert_eq!(of_rows(&texts, &[0, 0, 0, 1]), 300 + 16);
        let views = StringViewArray::from(vec!["x".repeat(100)]);
        assert_eq!(of_rows(&views, &[0, 0]), 2 * 116);
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1); 50]), None]);
        assert_eq!(of_rows(&lists, &[0, 0, 1]), 2 * 200 + 3 * 4);
    }

    #[test]
    fn a_struct_is_the_sum_of_its_fields() {
        let one = StructArray::from(vec![
            (Arc::new(Field::new("n", D::Int64, true)), Arc::new(Int64Array::from(vec![1, 2])) as _),
            (Arc::new(Field::new("t", D::Utf8, true)), Arc::new(StringArray::from(vec!["ab", "c"])) as _),
        ]);
        assert_eq!(of_array(&one), 16 + 3 + 8);
    }
}
