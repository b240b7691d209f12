//! Layers that change images at random while training, and hand them on as they are otherwise.

use memfit_ir::{Augment, Change, Fill, Interpolation, Op, Sampling, TensorId, random};

use crate::error::FormatError;
use crate::site::Site;
use crate::table::Class;

pub(crate) fn layer(site: &mut Site<'_>, class: Class, x: TensorId) -> Result<TensorId, FormatError> {
    let [tall, wide, _] = site.image(x)?;
    let settings = site.settings;
    let change = match class {
        Class::RandomFlip => {
            let mode = settings.choice("mode");
            Change::Flip { horizontal: mode.contains("horizontal"), vertical: mode.contains("vertical") }
        }
        Class::RandomCrop => {
            let (height, width) = (settings.size("height"), settings.size("width"));
            if tall < height || wide < width {
                return Err(site.mismatch(&format!("an image of at least {height}×{width}"), x));
            }
            Change::Crop { height, width }
        }
        Class::RandomRotation => Change::Rotate { turns: settings.range("factor"), sampling: sampling(site) },
        Class::RandomTranslation => Change::Translate {
            height: settings.range("height_factor"),
            width: settings.range("width_factor"),
            sampling: sampling(site),
        },
        Class::RandomZoom => Change::Zoom {
            height: settings.range("height_factor"),
            width: settings.maybe_range("width_factor"),
            sampling: sampling(site),
        },
        Class::RandomContrast => {
            // Keras reads one number as more alone.
            let [less, more] = settings.range("factor");
            let factor = [1.0 - less.max(0.0), 1.0 + more];
            Change::Contrast { factor, range: settings.range("value_range") }
        }
        _ => Change::Brightness { share: settings.range("factor"), range: settings.range("value_range") },
    };
    if !site.training {
        return Ok(x);
    }
    let own = settings.seed("seed").unwrap_or_else(|| random::purpose(site.path));
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
