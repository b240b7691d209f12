//! Layers that change images at random in training, and give them unchanged otherwise.

use memfit_ir::{Augment, Change, Fill, Interpolation, Op, Sampling, TensorId, random};

use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn flip(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let mode = site.settings.choice("mode");
    let (horizontal, vertical) = (mode.contains("horizontal"), mode.contains("vertical"));
    augment(site, Change::Flip { horizontal, vertical }, x)
}

pub(crate) fn crop(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (height, width) = (site.settings.size("height"), site.settings.size("width"));
    let [tall, wide, _] = site.image(x)?;
    if tall < height || wide < width {
        return Err(site.mismatch(&format!("an image of at least {height}×{width}"), x));
    }
    augment(site, Change::Crop { height, width }, x)
}

pub(crate) fn rotation(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let turns = site.settings.range("factor");
    augment(site, Change::Rotate { turns, sampling: sampling(site) }, x)
}

pub(crate) fn translation(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (height, width) = (site.settings.range("height_factor"), site.settings.range("width_factor"));
    augment(site, Change::Translate { height, width, sampling: sampling(site) }, x)
}

pub(crate) fn zoom(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (height, width) = (site.settings.range("height_factor"), site.settings.maybe_range("width_factor"));
    augment(site, Change::Zoom { height, width, sampling: sampling(site) }, x)
}

pub(crate) fn contrast(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    // Keras reads one number as more contrast alone.
    let [less, more] = site.settings.range("factor");
    let (factor, range) = ([1.0 - less.max(0.0), 1.0 + more], site.settings.range("value_range"));
    augment(site, Change::Contrast { factor, range }, x)
}

pub(crate) fn brightness(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (share, range) = (site.settings.range("factor"), site.settings.range("value_range"));
    augment(site, Change::Brightness { share, range }, x)
}

/// Nothing outside training. Every call of a shared layer draws by itself.
fn augment(site: &mut Site<'_>, change: Change, x: TensorId) -> Result<TensorId, FormatError> {
    site.image(x)?;
    if !site.training {
        return Ok(x);
    }
    let own = site.settings.seed("seed").unwrap_or_else(|| random::purpose(site.path));
    let seed = if site.call == 0 { own } else { random::derive(own, site.call) };
    site.push(Op::Augment(Augment { change, seed }), &[x])
}

fn sampling(site: &Site<'_>) -> Sampling {
    let interpolation = match site.settings.choice("interpolation") {
        "nearest" => Interpolation::Nearest,
        _ => Interpolation::Bilinear,
    };
    let fill = match site.settings.choice("fill_mode") {
        "constant" => Fill::Constant(site.settings.number("fill_value") as f32),
        "nearest" => Fill::Nearest,
        "wrap" => Fill::Wrap,
        _ => Fill::Reflect,
    };
    Sampling { interpolation, fill }
}
