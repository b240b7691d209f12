//! From a model to its forward graph: every call of every layer, in an order that is valid to run.

use std::collections::HashMap;

use memfit_ir::{DType, Graph, LayerId, Op, Regularizer, TensorId};

use crate::error::FormatError;
use crate::further_table::Further;
use crate::keras::ANEW;
use crate::layers;
use crate::model::{Body, Built, Endpoint, Layer, Model};
use crate::precision::Precision;
use crate::site::Site;
use crate::stored::{self, LayerRow};
use crate::table::{Class, LayerClass};
use crate::{Mode, Options};

/// The most calls of layers. Models that each call the next one twice are refused instead of taking for ever.
pub(crate) const MOST_CALLS: usize = 200_000;

/// What each call of each layer gives.
pub(crate) type Values = Vec<Vec<Vec<TensorId>>>;

/// The forward graph of a model, and the rows of a table of its layers; `common` is the policy that the options' own
/// replaces.
pub(crate) fn build(
    model: &mut Model,
    options: &Options,
    common: Option<Precision>,
) -> Result<(Graph, Vec<LayerRow>), FormatError> {
    let mut builder = Builder {
        graph: Graph::default(),
        options: *options,
        common,
        casts: HashMap::new(),
        masks: HashMap::new(),
        calls: 0,
    };
    let mut inputs = Vec::with_capacity(model.inputs.len());
    for index in &model.inputs {
        inputs.push(builder.feed(&model.layers[*index], || model.looks_up(*index))?);
    }
    let (outputs, values) = builder.run(model, "", &inputs, options.mode == Mode::Training)?;
    let mut graph = builder.graph;
    graph.masks = outputs.iter().filter_map(|id| builder.masks.get(id).map(|mask| (*id, *mask))).collect();
    graph.inputs = inputs;
    graph.outputs = outputs;
    let rows = stored::rows(model, &values, &graph);
    Ok((graph, rows))
}

pub(crate) struct Builder {
    pub(crate) graph: Graph,
    options: Options,
    common: Option<Precision>,
    /// Tensors that were cast already.
    casts: HashMap<(TensorId, DType), TensorId>,
    /// Calls of layers so far.
    calls: usize,
    /// Which places of what a layer gave count, where it said so.
    masks: HashMap<TensorId, TensorId>,
}

impl Builder {
    /// The tensor that an input layer is fed by; whole numbers stay whole where they are looked up.
    fn feed(&mut self, layer: &Layer, looked_up: impl FnOnce() -> bool) -> Result<TensorId, FormatError> {
        let Body::Single { row, settings } = &layer.body else { return Err(FormatError::NoInput) };
        let id = self.declare(&layer.path);
        layers::input(
            &mut Site {
                graph: &mut self.graph,
                settings,
                path: &layer.path,
                class: row.name,
                layer: id,
                trainable: false,
                training: false,
                call: 0,
                seed: self.options.seed,
                within: String::new(),
                weights: &mut Vec::new(),
                masks: Vec::new(),
                further: &mut Vec::new(),
            },
            looked_up,
        )
    }

    /// Calls a model on tensors. Recursion is as deep as models are nested, not as models are long.
    pub(crate) fn run(
        &mut self,
        model: &mut Model,
        path: &str,
        inputs: &[TensorId],
        training: bool,
    ) -> Result<(Vec<TensorId>, Values), FormatError> {
        if inputs.len() != model.inputs.len() {
            return Err(FormatError::InputCount {
                layer: path.to_owned(),
                class: "Model",
                expected: format!("{} inputs", model.inputs.len()),
                got: inputs.len(),
            });
        }
        let mut values: Values =
            model.layers.iter().map(|layer| vec![Vec::new(); layer.calls.len()]).collect();
        for (index, tensor) in model.inputs.iter().zip(inputs) {
            values[*index] = vec![vec![*tensor]];
        }
        for (index, call) in model.order()? {
            let layer = &mut model.layers[index];
            if layer.is_input() && layer.calls[call].is_empty() {
                continue;
            }
            let operands = layer.calls[call]
                .iter()
                .map(|endpoint| value(&values, endpoint, || format!("layer `{}`", layer.path)))
                .collect::<Result<Vec<_>, _>>()?;
            values[index][call] = self.call(layer, &operands, training)?;
        }
        let outputs = model
            .outputs
            .iter()
            .map(|endpoint| value(&values, endpoint, || "the model's output".to_owned()))
            .collect::<Result<_, _>>()?;
        Ok((outputs, values))
    }

    fn call(
        &mut self,
        layer: &mut Layer,
        operands: &[TensorId],
        training: bool,
    ) -> Result<Vec<TensorId>, FormatError> {
        self.calls += 1;
        if MOST_CALLS < self.calls {
            return Err(FormatError::TooManyCalls { layer: layer.path.clone(), limit: MOST_CALLS });
        }
        let (row, settings) = match &mut layer.body {
            Body::Nested(model) => return self.run(model, &layer.path, operands, training).map(|ran| ran.0),
            Body::Single { row, settings } => (*row, &*settings),
            Body::Operation(_) => return self.operate(layer, operands),
            Body::Distributed(_) => return self.distribute(layer, operands, training),
            Body::Implied => return Err(FormatError::NoInput),
        };
        self.require_operands(&layer.path, row, operands)?;
        let mut built = match layer.built.take() {
            Some(built) => built,
            None => Built { layer: self.declare(&layer.path), weights: Vec::new(), calls: 0 },
        };
        let compute = self.precision(settings.precision()).compute();
        let masks = operands.iter().map(|operand| self.masks.get(operand).copied()).collect();
        // What is fed keeps its type until a layer computes with it, and numbers of rows of a table stay whole.
        let keeps = matches!(row.class, Class::InputLayer | Class::Embedding);
        let cast =
            |operand: &TensorId| if keeps { *operand } else { self.cast(*operand, compute, built.layer) };
        let operands: Vec<TensorId> = operands.iter().map(cast).collect();
        let given_mask = layer.given_mask;
        let mut further = Vec::new();
        let mut site = Site {
            graph: &mut self.graph,
            settings,
            path: &layer.path,
            class: row.name,
            layer: built.layer,
            trainable: layer.trainable,
            training,
            call: built.calls,
            seed: self.options.seed,
            within: String::new(),
            weights: &mut built.weights,
            masks,
            further: &mut further,
        };
        if given_mask && site.masks.iter().all(Option::is_none) {
            let supported = "the mask that an Embedding or Masking layer makes";
            return Err(site.unsupported("mask", "another tensor", supported));
        }
        let output = layers::call(&mut site, row.class, &operands)?;
        let mask = layers::mask(&mut site, row.class, &operands)?;
        let names: Vec<&str> = site.weights.iter().map(|weight| weight.name.as_str()).collect();
        if let Some(lost) = settings.rules_without_weight(&names) {
            return Err(site.unsupported(lost, "what is given", "null, since the layer has no such weight"));
        }
        let activity = if row.class == Class::Further(Further::ActivityRegularization) {
            let factor = |name: &str| settings.number(name) as f32;
            Some(Regularizer { l1: factor("l1"), l2: factor("l2"), ..Regularizer::default() })
        } else {
            settings.activity()
        };
        if activity.is_some_and(|regularizer| regularizer.orthogonal.is_some()) {
            let supported = "L1, L2 or L1L2: rows of a batch have no angles";
            return Err(site.unsupported("activity_regularizer", "orthogonal", supported));
        }
        let output =
            if row.class == Class::Embedding { self.cast(output, compute, built.layer) } else { output };
        self.masks.extend(mask.map(|mask| (output, mask)));
        self.graph.activities.extend(activity.map(|regularizer| (output, regularizer)));
        built.calls += 1;
        layer.built = Some(built);
        Ok(std::iter::once(output).chain(further).collect())
    }

    /// Calls a function of `keras.ops`, which computes in the type of what it is given.
    fn operate(&mut self, layer: &mut Layer, operands: &[TensorId]) -> Result<Vec<TensorId>, FormatError> {
        let Body::Operation(operation) = &layer.body else { return Err(FormatError::NoInput) };
        let (path, class) = (layer.path.clone(), operation.name);
        let types: Vec<DType> = operands.iter().map(|id| self.graph.tensors[id.0].dtype).collect();
        if let Some(integer) =
            operands.iter().map(|id| &self.graph.tensors[id.0]).find(|t| t.dtype == DType::I32)
        {
            return Err(FormatError::IntegerInput { layer: path, class, got: integer.shape.clone() });
        }
        if operands.is_empty() {
            let expected = "at least one tensor".to_owned();
            return Err(FormatError::InputCount { layer: path, class, expected, got: 0 });
        }
        let mut built = match layer.built.take() {
            Some(built) => built,
            None => Built { layer: self.declare(&layer.path), weights: Vec::new(), calls: 0 },
        };
        let compute = if types.windows(2).all(|pair| pair[0] == pair[1]) { types[0] } else { DType::F32 };
        let operands: Vec<TensorId> =
            operands.iter().map(|operand| self.cast(*operand, compute, built.layer)).collect();
        let made = operation.call(
            &mut Site {
                graph: &mut self.graph,
                settings: &operation.settings,
                path: &layer.path,
                class,
                layer: built.layer,
                trainable: layer.trainable,
                training: false,
                call: built.calls,
                seed: self.options.seed,
                within: String::new(),
                weights: &mut built.weights,
                masks: Vec::new(),
                further: &mut Vec::new(),
            },
            &operands,
        )?;
        built.calls += 1;
        layer.built = Some(built);
        Ok(made)
    }

    /// The policy of a layer that has this one of its own.
    fn precision(&self, own: Option<Precision>) -> Precision {
        let stands_out = own.is_some() && own != self.common;
        let wanted = if stands_out { own } else { self.options.precision.or(own) };
        wanted.unwrap_or(Precision::Float32)
    }

    /// The same numbers in another type of floats; integers stay as they are.
    fn cast(&mut self, tensor: TensorId, to: DType, layer: LayerId) -> TensorId {
        let from = self.graph.tensors[tensor.0].dtype;
        let is_float = matches!(from, DType::F32 | DType::F16 | DType::BF16);
        if from == to || !is_float {
            return tensor;
        }
        if let Some(known) = self.casts.get(&(tensor, to)) {
            return *known;
        }
        let made = self.graph.push(Op::Cast(to), &[tensor], layer).expect("floats of any shape can be cast");
        self.casts.insert((tensor, to), made[0]);
        made[0]
    }

    fn require_operands(
        &self,
        path: &str,
        row: &LayerClass,
        operands: &[TensorId],
    ) -> Result<(), FormatError> {
        let (layer, class) = (path.to_owned(), row.name);
        if !row.inputs.accept(operands.len()) {
            let expected = row.inputs.describe().to_owned();
            return Err(FormatError::InputCount { layer, class, expected, got: operands.len() });
        }
        // Of what is within a TimeDistributed only an Embedding gets this far: see `Model::looks_up`.
        let takes_integers =
            matches!(row.class, Class::Embedding | Class::Flatten | Class::Reshape | Class::TimeDistributed);
        let integer = operands.iter().map(|id| &self.graph.tensors[id.0]).find(|t| t.dtype == DType::I32);
        match integer {
            Some(tensor) if !takes_integers => {
                Err(FormatError::IntegerInput { layer, class, got: tensor.shape.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The dimensions of a tensor after its batch.
    pub(crate) fn dims(&self, tensor: TensorId) -> &[usize] {
        &self.graph.tensors[tensor.0].shape.dims
    }

    /// Whether a layer said which places of a tensor count.
    pub(crate) fn has_mask(&self, tensor: TensorId) -> bool {
        self.masks.contains_key(&tensor)
    }

    /// Whether a tensor holds whole numbers.
    pub(crate) fn is_whole(&self, tensor: TensorId) -> bool {
        self.graph.tensors[tensor.0].dtype == DType::I32
    }

    /// The id of a new layer. Paths are known to differ, so no search is needed.
    pub(crate) fn declare(&mut self, path: &str) -> LayerId {
        self.graph.layers.push(path.to_owned());
        LayerId(self.graph.layers.len() - 1)
    }
}

/// The tensor at an endpoint; nested models have several outputs, layers one.
fn value(
    values: &[Vec<Vec<TensorId>>],
    endpoint: &Endpoint,
    referrer: impl Fn() -> String,
) -> Result<TensorId, FormatError> {
    let made = &values[endpoint.layer][endpoint.call];
    made.get(endpoint.output).copied().ok_or_else(|| FormatError::Dangling {
        referrer: referrer(),
        missing: format!("output {} of a layer that has {}", endpoint.output, made.len()),
        hint: ANEW.to_owned(),
    })
}
