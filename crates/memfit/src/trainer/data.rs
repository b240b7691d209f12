//! Arrays of the caller's: what a model is trained on, read where they stand.

use memfit_data::{Borrowed, BorrowedArray, BorrowedOrder, Field, Part, Shuffled, Source};
use memfit_device::{Element, bytes_of};
use memfit_ir::Bytes;

use crate::data::rows_trained;
use crate::{CallerRows, Error};

/// Numbers with dimensions, rows first: a view of a slice that the caller holds.
///
/// ```
/// use memfit::prelude::*;
/// let pixels = vec![0u8; 100 * 28 * 28];
/// let images = Array::new(&pixels, [100, 28, 28, 1])?;
/// assert_eq!(images.rows(), 100);
/// let wrong = Array::new(&pixels, [100, 32, 32]).unwrap_err();
/// assert_eq!(wrong.to_string(), "data: 78400 elements are not [100, 32, 32], which is 102400; give the array's own dimensions");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Array<'a> {
    description: &'static str,
    dims: Vec<u64>,
    bytes: &'a [u8],
    /// The first element that is not a number, where the elements are floats.
    first_nan: fn(&[u8]) -> Option<usize>,
}

impl<'a> Array<'a> {
    /// A slice of f32, f64, whole numbers of any size or bool, under these dimensions.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let labels = Array::new(&[3, 1, 2], [3])?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new<E: Element>(elements: &'a [E], dims: impl AsRef<[usize]>) -> Result<Array<'a>, Error> {
        let dims = dims.as_ref();
        let wanted = dims.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
        if wanted != Some(elements.len()) {
            let wanted = wanted.map_or("more than can be counted".to_owned(), |count| count.to_string());
            let problem = format!(
                "{} elements are not {dims:?}, which is {wanted}; give the array's own dimensions",
                elements.len()
            );
            return Err(Error::job("data", problem));
        }
        let dims: Vec<u64> = dims.iter().map(|size| *size as u64).collect();
        let first_nan = match &E::DESCRIPTION[1..] {
            "f4" => |bytes: &[u8]| position(bytes, |four| f32::from_ne_bytes(*four).is_nan()),
            "f8" => |bytes: &[u8]| position(bytes, |eight| f64::from_ne_bytes(*eight).is_nan()),
            _ => |_: &[u8]| None,
        };
        Ok(Array { description: E::DESCRIPTION, dims, bytes: bytes_of(elements), first_nan })
    }

    /// How many rows there are.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// assert_eq!(Array::new(&[0.5f32; 6], [2, 3])?.rows(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rows(&self) -> u64 {
        self.dims.first().copied().unwrap_or(0)
    }
}

fn position<const N: usize>(bytes: &[u8], is_wanted: fn(&[u8; N]) -> bool) -> Option<usize> {
    bytes.as_chunks().0.iter().position(is_wanted)
}

/// What a model is trained or evaluated on: an array for each input and for each target, and where wanted one of weights.
///
/// ```
/// use memfit::prelude::*;
/// let (x, y) = (vec![0.0f32; 8 * 4], vec![0u8; 8]);
/// let data = Dataset::new(Array::new(&x, [8, 4])?, Array::new(&y, [8])?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Dataset<'a> {
    inputs: Vec<Array<'a>>,
    targets: Vec<Array<'a>>,
    sample_weights: Vec<Array<'a>>,
}

impl<'a> Dataset<'a> {
    /// One input and one target.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let data = Dataset::new(Array::new(&[0.5f32; 6], [2, 3])?, Array::new(&[1i64, 0], [2])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(input: Array<'a>, target: Array<'a>) -> Dataset<'a> {
        Dataset::default().input(input).target(target)
    }

    /// With one input more; they come in the order of the model's inputs.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let data = Dataset::default().input(Array::new(&[0.5f32; 6], [2, 3])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn input(mut self, input: Array<'a>) -> Dataset<'a> {
        self.inputs.push(input);
        self
    }

    /// With one target more; they come in the order of the model's outputs.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let data = Dataset::default().input(Array::new(&[0.5f32; 6], [2, 3])?).target(Array::new(&[1, 0], [2])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn target(mut self, target: Array<'a>) -> Dataset<'a> {
        self.targets.push(target);
        self
    }

    /// With the weight of each row, for a training that is planned with [`Trainer::sample_weights`](crate::prelude::Trainer).
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let data = Dataset::new(Array::new(&[0.5f32; 6], [2, 3])?, Array::new(&[1, 0], [2])?)
    ///     .sample_weight(Array::new(&[1.0f32, 0.25], [2])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sample_weight(mut self, weights: Array<'a>) -> Dataset<'a> {
        self.sample_weights.push(weights);
        self
    }

    fn arrays(&self) -> impl Iterator<Item = &Array<'a>> {
        self.inputs.iter().chain(&self.targets).chain(&self.sample_weights)
    }

    /// The same without targets and weights, which predictions need not have.
    pub(super) fn only_inputs(self) -> Dataset<'a> {
        Dataset { inputs: self.inputs, ..Dataset::default() }
    }

    /// The arrays as rows of these fields, after what can be said before anything runs.
    pub(super) fn open<'s>(&'s self, fields: &'s [Field]) -> Result<Borrowed<'s>, Error> {
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let count = self.arrays().count();
        if count != fields.len() {
            let mut problem = format!(
                "there are {count} arrays ({} inputs, {} targets, {} of weights), and the model takes one for each of {}",
                self.inputs.len(),
                self.targets.len(),
                self.sample_weights.len(),
                names.join(", ")
            );
            if !self.sample_weights.is_empty() {
                problem += "; rows count by weights where the trainer says `.sample_weights()`";
            }
            return Err(Error::job("data", problem));
        }
        for (field, array) in fields.iter().zip(self.arrays()) {
            if array.rows() == 0 {
                let problem = format!("the array for `{}` has no rows; give at least one", field.name);
                return Err(Error::job("data", problem));
            }
        }
        let checked = fields.iter().zip(self.arrays()).skip(self.inputs.len());
        for (field, array) in checked {
            if let Some(element) = (array.first_nan)(array.bytes) {
                let row =
                    element / (array.bytes.len() / size_of_element(array) / array.rows() as usize).max(1);
                let problem = format!(
                    "the array for `{}` has a NaN in row {row}; leave the row out, or give it a number",
                    field.name
                );
                return Err(Error::job("data", problem));
            }
        }
        let arrays: Vec<BorrowedArray<'_>> = self
            .arrays()
            .map(|array| {
                let Array { description, dims, bytes, .. } = array;
                BorrowedArray { description, dims, bytes }
            })
            .collect();
        Ok(Borrowed::new(fields, &arrays, BorrowedOrder::Stored)?)
    }
}

fn size_of_element(array: &Array<'_>) -> usize {
    let elements: u64 = array.dims.iter().product();
    array.bytes.len() / usize::try_from(elements).unwrap_or(usize::MAX).max(1)
}

/// What arrays can be given as: a [`Dataset`], one [`Array`] where no targets are needed, a pair of input and target, or a pair of a
/// slice and its dimensions.
///
/// ```
/// use memfit::prelude::*;
/// struct Points(Vec<f32>);
/// impl Data for Points {
///     fn dataset(&self) -> Result<Dataset<'_>, Error> {
///         Ok(Dataset::default().input(Array::new(&self.0, [self.0.len() / 2, 2])?))
///     }
/// }
/// ```
pub trait Data {
    /// The arrays.
    fn dataset(&self) -> Result<Dataset<'_>, Error>;
}

impl Data for Dataset<'_> {
    fn dataset(&self) -> Result<Dataset<'_>, Error> {
        Ok(self.clone())
    }
}

impl Data for Array<'_> {
    fn dataset(&self) -> Result<Dataset<'_>, Error> {
        Ok(Dataset::default().input(self.clone()))
    }
}

impl Data for (Array<'_>, Array<'_>) {
    fn dataset(&self) -> Result<Dataset<'_>, Error> {
        Ok(Dataset::new(self.0.clone(), self.1.clone()))
    }
}

impl<E: Element, const N: usize> Data for (&[E], [usize; N]) {
    fn dataset(&self) -> Result<Dataset<'_>, Error> {
        Array::new(self.0, self.1)?.dataset_of()
    }
}

impl<E: Element, const N: usize> Data for (&Vec<E>, [usize; N]) {
    fn dataset(&self) -> Result<Dataset<'_>, Error> {
        Array::new(self.0, self.1)?.dataset_of()
    }
}

impl<'a> Array<'a> {
    fn dataset_of(self) -> Result<Dataset<'a>, Error> {
        Ok(Dataset::default().input(self))
    }
}

/// Stands for the rows of the caller's while a job is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) validates: bool,
    pub(super) shuffle_seed: Option<u64>,
}

impl CallerRows for Expected {
    fn planned(&self, fields: Vec<Field>) -> Box<dyn Source> {
        Box::new(Planned { fields, shuffle_seed: self.shuffle_seed })
    }

    fn validates(&self) -> bool {
        self.validates
    }
}

/// Rows that are not there yet.
struct Planned {
    fields: Vec<Field>,
    shuffle_seed: Option<u64>,
}

/// The most that the order of few rows takes.
const ORDER: Bytes = Bytes(64 << 10);

impl Source for Planned {
    fn rows(&self) -> Option<u64> {
        None
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(
        &mut self,
        _field: usize,
        start: u64,
        count: usize,
        _to: &mut [u8],
    ) -> Result<(), memfit_data::DataError> {
        Err(memfit_data::DataError::BeyondEnd { start, count, rows: 0 })
    }

    fn shuffle_seed(&self) -> Option<u64> {
        self.shuffle_seed
    }

    fn bytes(&self) -> Bytes {
        ORDER
    }
}

/// The rows that are trained on, and those that are validated on.
pub(super) struct Rows<'a> {
    pub(super) training: Box<dyn Source + 'a>,
    pub(super) validation: Option<Box<dyn Source + 'a>>,
}

/// Where the rows to validate on come from.
pub(super) enum Held<'a> {
    /// There are none.
    Nothing,
    /// A share of the training's rows.
    Share(f64),
    /// Arrays of their own.
    Own(&'a Dataset<'a>),
}

impl<'a> Rows<'a> {
    /// Opens the arrays of a training, whose rows are shuffled by this seed where there is one.
    pub(super) fn open(
        data: &'a Dataset<'a>,
        held: Held<'a>,
        fields: &'a [Field],
        shuffle_seed: Option<u64>,
    ) -> Result<Rows<'a>, Error> {
        let whole: Box<dyn Source + 'a> = Box::new(data.open(fields)?);
        let rows = whole.rows().unwrap_or(0);
        let (training, validation): (Box<dyn Source + 'a>, Option<Box<dyn Source + 'a>>) = match held {
            Held::Nothing => (whole, None),
            Held::Own(data) => (whole, Some(Box::new(data.open(fields)?))),
            Held::Share(share) => {
                let trained = rows_trained(rows, share)?;
                let held: Box<dyn Source + 'a> = Box::new(data.open(fields)?);
                (
                    Box::new(Part::new(whole, 0, trained)),
                    Some(Box::new(Part::new(held, trained, rows - trained))),
                )
            }
        };
        let training = match shuffle_seed {
            None => training,
            Some(seed) => Box::new(Shuffled::new(training, seed).expect("arrays have an end")),
        };
        Ok(Rows { training, validation })
    }
}
