//! Functions of `keras.ops` that a functional model calls on its tensors: which there are, and what they were given.

mod constants;
mod elementwise;
mod indexing;
mod products;
mod reducing;
mod shaping;

use memfit_ir::{Op, TensorId};
use serde_json::{Map, Value};

use crate::argument::{ArgumentError, brief};
use crate::error::FormatError;
use crate::functional::is_tensor;
use crate::layers::axis_after_batch;
use crate::settings::Settings;
use crate::site::Site;

/// A function of `keras.ops`, with what its calls are given besides tensors.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Keras's class of it.
    pub name: &'static str,
    function: Function,
    config: Map<String, Value>,
    /// What every layer has; all by default.
    pub settings: Settings,
    /// What each call is given, by place.
    calls: Vec<Vec<Given>>,
}

/// What stands at one place of a call.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    Tensor,
    Constant(Value),
}

/// The supported functions, by the module that knows how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Elementwise(elementwise::Function),
    Shaping(shaping::Function),
    Reducing(reducing::Function),
    Products(products::Function),
    GetItem,
}

impl Operation {
    /// The function of a class; nothing where it is not supported.
    pub fn find(class: &str, config: &Map<String, Value>) -> Option<Operation> {
        let (name, function) = functions().find(|(name, _)| *name == class)?;
        let settings = Settings::read(&[], &Map::new()).expect("what every layer has has defaults");
        Some(Operation { name, function, config: config.clone(), settings, calls: Vec::new() })
    }

    /// Keeps what every call is given besides tensors.
    pub fn keep_given(&mut self, nodes: &[Value]) {
        self.calls = nodes
            .iter()
            .map(|node| {
                let mut given = Vec::new();
                for value in node.get("args").and_then(Value::as_array).into_iter().flatten() {
                    list_given(value, &mut given);
                }
                given
            })
            .collect();
    }

    /// Calls the function on its operands.
    pub fn call(&self, site: &mut Site<'_>, operands: &[TensorId]) -> Result<Vec<TensorId>, FormatError> {
        let nothing = Vec::new();
        let given = usize::try_from(site.call).ok().and_then(|call| self.calls.get(call));
        let mut call = Call { site, config: &self.config, given: given.unwrap_or(&nothing), operands };
        match self.function {
            Function::Elementwise(function) => call.elementwise(function).map(|made| vec![made]),
            Function::Shaping(function) => call.shaping(function),
            Function::Reducing(function) => call.reducing(function).map(|made| vec![made]),
            Function::Products(function) => call.products(function).map(|made| vec![made]),
            Function::GetItem => call.get_item().map(|made| vec![made]),
        }
    }
}

fn functions() -> impl Iterator<Item = (&'static str, Function)> {
    let elementwise = elementwise::FUNCTIONS.iter().map(|(name, f)| (*name, Function::Elementwise(*f)));
    let shaping = shaping::FUNCTIONS.iter().map(|(name, f)| (*name, Function::Shaping(*f)));
    let reducing = reducing::FUNCTIONS.iter().map(|(name, f)| (*name, Function::Reducing(*f)));
    let products = products::FUNCTIONS.iter().map(|(name, f)| (*name, Function::Products(*f)));
    elementwise.chain(shaping).chain(reducing).chain(products).chain([("GetItem", Function::GetItem)])
}

/// Lists of tensors count one by one; what holds no tensor is one constant.
fn list_given(value: &Value, given: &mut Vec<Given>) {
    if is_tensor(value) {
        return given.push(Given::Tensor);
    }
    match value.as_array().filter(|items| items.iter().any(is_tensor)) {
        Some(items) => items.iter().for_each(|item| list_given(item, given)),
        None => given.push(Given::Constant(value.clone())),
    }
}

/// One call of a function.
struct Call<'a, 's> {
    site: &'a mut Site<'s>,
    config: &'a Map<String, Value>,
    given: &'a [Given],
    operands: &'a [TensorId],
}

impl Call<'_, '_> {
    /// The only operand.
    fn single(&self) -> Result<TensorId, FormatError> {
        match (self.operands, self.given) {
            ([x], [Given::Tensor]) => Ok(*x),
            _ => Err(self.refuse("call", &Value::from(self.given.len()), "one tensor alone")),
        }
    }

    fn dims(&self, tensor: TensorId) -> Vec<usize> {
        self.site.dims(tensor).to_vec()
    }

    /// An argument of the function; null where it is not written down.
    fn argument(&self, name: &str) -> &Value {
        self.config.get(name).unwrap_or(&Value::Null)
    }

    /// One axis, counted after the batch.
    fn axis(&self, name: &str, axes: usize) -> Result<usize, FormatError> {
        let value = self.argument(name);
        let found = value.as_i64().and_then(|axis| axis_after_batch(axis, axes));
        found.ok_or_else(|| self.refuse(name, value, "an axis after the batch that the tensor has"))
    }

    /// One axis or several, counted after the batch, in ascending order.
    fn axes(&self, name: &str, axes: usize) -> Result<Vec<usize>, FormatError> {
        let value = self.argument(name);
        let refuse = || self.refuse(name, value, "axes after the batch that the tensor has");
        let listed = match value {
            Value::Array(items) => items.iter().map(Value::as_i64).collect::<Option<Vec<_>>>(),
            Value::Number(_) => value.as_i64().map(|axis| vec![axis]),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => None,
        };
        let found = listed.and_then(|listed| {
            listed.iter().map(|axis| axis_after_batch(*axis, axes)).collect::<Option<Vec<_>>>()
        });
        let mut found = found.ok_or_else(refuse)?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// A number that an argument is; a default where it is null.
    fn number(&self, name: &str, default: f64) -> Result<f64, FormatError> {
        let value = self.argument(name);
        if value.is_null() {
            return Ok(default);
        }
        value.as_f64().ok_or_else(|| self.refuse(name, value, "a number"))
    }

    fn reshape(&mut self, x: TensorId, dims: Vec<usize>) -> Result<TensorId, FormatError> {
        self.site.push(Op::Reshape(dims), &[x])
    }

    /// Axes in another order; nothing where it is the same.
    fn transpose(&mut self, x: TensorId, order: Vec<usize>) -> Result<TensorId, FormatError> {
        if order.iter().copied().eq(0..order.len()) {
            return Ok(x);
        }
        self.site.push(Op::Transpose(order), &[x])
    }

    fn broadcast(&mut self, x: TensorId, dims: &[usize]) -> Result<TensorId, FormatError> {
        if self.site.dims(x) == dims {
            return Ok(x);
        }
        self.site.push(Op::Broadcast(dims.to_vec()), &[x])
    }

    fn refuse(&self, argument: &str, value: &Value, supported: &str) -> FormatError {
        FormatError::Argument {
            layer: self.site.path.to_owned(),
            class: self.site.class,
            argument: argument.to_owned(),
            fault: ArgumentError::unsupported(brief(value), supported).fault,
        }
    }
}
