//! The command as its users run it: every example at a small size, inside its budget, to the byte.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::harness::{command, ended_with, errors, example, lines, losses, memfit, reference, text};

fn memfit_cached(arguments: &[&str], cache: &Path) -> Output {
    command(arguments).env("XDG_CACHE_HOME", cache).output().unwrap()
}

fn events(arguments: &[&str]) -> Vec<Value> {
    lines(&memfit(arguments))
}

/// Trains with `--json` and checks what every run must hold; gives the events back.
fn train(arguments: &[&str]) -> Vec<Value> {
    let events = events(&[&["train"], arguments, &["--json"]].concat());
    let end = events.last().unwrap();
    assert_eq!(end["event"], "end");
    assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"], "{arguments:?}");
    assert!(end["vm_hwm"].as_u64() <= end["budget"].as_u64(), "{arguments:?}: {end}");
    assert_eq!(end["steps"].as_u64().unwrap() as usize, events.len() - 1);
    for (index, step) in events[..events.len() - 1].iter().enumerate() {
        assert_eq!(step["event"], "step");
        assert_eq!(step["step"].as_u64().unwrap() as usize, index + 1);
        assert!(step["loss"].as_f64().unwrap().is_finite() && step["seconds"].as_f64().unwrap() > 0.0);
        assert!(step["bytes_used"].as_u64() <= end["vm_hwm"].as_u64(), "one figure: {step} and {end}");
        assert!(step["bytes_held"].as_u64() <= end["budget"].as_u64());
    }
    events
}

#[test]
fn large_images_train_inside_1536_mib() {
    let job = example("large-images.toml");
    let events = train(&[&job, "--budget", "1536MiB", "--batch", "3", "--steps", "1"]);
    assert_eq!(losses(&events).len(), 1);
}

#[test]
fn six_convolutions_train() {
    train(&[&example("six-convolutions.toml"), "--budget", "512MiB", "--batch", "2", "--steps", "1"]);
}

#[test]
fn the_reduced_network_trains() {
    train(&[&example("reduced.toml"), "--budget", "200MiB", "--batch", "4", "--steps", "2"]);
}

#[test]
fn five_thousand_layers_train() {
    train(&[&example("deep-dense.toml"), "--budget", "1GiB", "--batch", "50", "--steps", "2"]);
}

#[test]
fn a_batch_split_by_its_budget_equals_the_whole() {
    let job = example("accumulate.toml");
    let split = train(&[&job]);
    let whole = train(&[&job, "--budget", "1GiB"]);
    for (a, b) in losses(&split).iter().zip(losses(&whole)) {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} and {b}");
    }
    let micro_batches = |budget: &[&str]| {
        let plan = &events(&[&["plan", &job, "--json", "--costs", "analytic"], budget].concat())[0];
        plan["micro_batches"].as_u64().unwrap()
    };
    assert!(micro_batches(&[]) > 1, "the example's own budget splits the batch");
    assert_eq!(micro_batches(&["--budget", "1GiB"]), 1);
}

#[test]
fn twenty_epochs_hold_what_the_second_step_held() {
    let events = train(&[&example("flat.toml")]);
    assert_eq!(events.len() - 1, 20 * 8, "500 rows are 8 batches of 64, the last one short");
    let used: Vec<u64> =
        events[1..events.len() - 1].iter().map(|step| step["bytes_held"].as_u64().unwrap()).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    // The system counts resident pages in batches for each thread, so a reading may be a few pages off.
    assert!(most - least <= 256 << 10, "resident memory moved between {least} and {most}");
    assert!(used[used.len() - 1] <= used[10] + (64 << 10), "the last step holds what an early one held");
    let losses = losses(&events);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(
        mean(&losses[152..]) < mean(&losses[..8]),
        "twenty epochs over the same rows are learnt by heart"
    );
}

#[test]
fn the_smallest_budget_is_honest() {
    for name in ["accumulate.toml", "flat.toml"] {
        let job = example(name);
        let plan = &events(&["plan", &job, "--budget", "1GiB", "--json"])[0];
        let smallest = plan["bytes_smallest_budget"].as_u64().unwrap();
        train(&[&job, "--budget", &smallest.to_string(), "--steps", "2"]);
        let below = (smallest - (1 << 20)).to_string();
        let refused = memfit(&["plan", &job, "--budget", &below, "--json"]);
        let plan: Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!((&plan["fits"], plan["bytes_smallest_budget"].as_u64()), (&false.into(), Some(smallest)));
        assert_eq!(refused.status.code(), Some(3));
        let answer = String::from_utf8(refused.stderr).unwrap();
        assert!(answer.contains("fits   at") && answer.contains("held"), "{answer}");
        assert_eq!(memfit(&["train", &job, "--budget", &below]).status.code(), Some(3));
    }
}

#[test]
fn a_budget_beyond_the_machine_is_lowered_and_said() {
    let events = events(&["train", &example("flat.toml"), "--steps", "1", "--budget", "1000TiB", "--json"]);
    assert_eq!((&events[0]["event"], &events[0]["asked"]), (&"lowered".into(), &(1000u64 << 40).into()));
    assert_eq!(events[0]["budget"], events[2]["budget"]);
    assert!(events[2]["vm_hwm"].as_u64() <= events[2]["budget"].as_u64());
}

#[test]
fn a_plan_is_for_this_machine_or_by_its_budget_alone() {
    let job = example("accumulate.toml");
    let plan =
        |more: &[&str]| memfit(&[&["plan", &job, "--costs", "analytic", "--device", "cpu"], more].concat());
    let here = plan(&["--budget", "1000TiB"]);
    assert!(here.status.success() && errors(&here).contains("lowered to"), "{}", errors(&here));
    let elsewhere = plan(&["--budget", "1000TiB", "--machine", "none"]);
    assert!(elsewhere.status.success() && errors(&elsewhere).is_empty(), "{}", errors(&elsewhere));
    let said = text(&elsewhere);
    assert!(said.contains("1000.00 TiB") && said.contains("for another machine"), "{said}");
    let model = reference("image.keras").display().to_string();
    let said = ended_with(&memfit(&["plan", &model, "--machine", "none"]), 2);
    assert!(said.contains("what another machine allows is not known; give --budget"), "{said}");
}

#[test]
fn the_same_job_twice_gives_the_same_bits_at_any_number_of_threads() {
    let job = example("flat.toml");
    let run = |threads: &str| losses(&train(&[&job, "--steps", "12", "--threads", threads]));
    let once = run("2");
    assert_eq!(once, run("2"));
    assert_eq!(once, run("1"));
    assert_eq!(once, run("3"));
}

#[test]
fn a_report_is_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    train(&[&example("flat.toml"), "--steps", "2", "--report", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("conv2d") && page.trim_end().ends_with("</html>"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside the report");
}

#[test]
fn a_sweep_goes_from_the_fastest_plan_to_the_smallest_and_each_point_is_honest() {
    let job = example("six-convolutions.toml");
    let sweep = &events(&["plan", &job, "--sweep", "--json", "--costs", "analytic"])[0];
    let points = sweep["points"].as_array().unwrap();
    assert!(points.len() >= 8, "{} points", points.len());
    assert_eq!(points[0]["time_relative"], 1.0);
    for pair in points.windows(2) {
        let field = |point: &Value, key: &str| point[key].as_f64().unwrap();
        assert!(field(&pair[1], "budget") < field(&pair[0], "budget"));
        assert!(field(&pair[0], "time_relative") <= field(&pair[1], "time_relative"));
    }
    let bounded = |point: &Value| {
        point["time_bound"].as_f64().unwrap() <= point["time_relative"].as_f64().unwrap() + 1e-9
    };
    assert!(points.iter().all(bounded), "no plan is faster than its bound");
    assert!(points.iter().any(|point| point["nodes_recomputed"].as_u64().unwrap() > 0));
    for point in points.iter().step_by(points.len() / 4) {
        let budget = point["budget"].as_u64().unwrap().to_string();
        let plan = &events(&["plan", &job, "--budget", &budget, "--json", "--costs", "analytic"])[0];
        assert_eq!(plan["bytes_peak"], point["bytes_peak"], "a budget buys its point of the curve");
    }
    let end = points[points.len() - 1]["budget"].as_u64();
    let plan = &events(&["plan", &job, "--budget", "100GiB", "--json"])[0];
    assert_eq!(plan["bytes_smallest_budget"].as_u64(), end);
}

#[test]
fn a_job_trains_alike_when_values_are_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("norm.toml");
    let layers = "[[model.layers]]\nclass = \"Conv2D\"\nfilters = 8\nkernel_size = 3\npadding = \"same\"\n\
                  [[model.layers]]\nclass = \"BatchNormalization\"\n\
                  [[model.layers]]\nclass = \"Activation\"\nactivation = \"relu\"\n";
    let text = format!(
        "[[model.layers]]\nclass = \"Input\"\nshape = [32, 32, 3]\n{}[[model.layers]]\nclass = \"GlobalAveragePooling2D\"\n\
         [[model.layers]]\nclass = \"Dense\"\nunits = 3\nactivation = \"softmax\"\n\
         [train]\nloss = \"sparse_categorical_crossentropy\"\noptimizer = \"adam\"\nbatch = 16\nsteps = 3\n",
        layers.repeat(6)
    );
    std::fs::write(&path, text).unwrap();
    let job = path.to_str().unwrap();
    let plan = &events(&["plan", job, "--budget", "1GiB", "--json"])[0];
    let smallest = plan["bytes_smallest_budget"].as_u64().unwrap();
    assert!(smallest < plan["bytes_peak"].as_u64().unwrap() + plan["bytes_runtime"].as_u64().unwrap());
    let (low, high) = (train(&[job, "--budget", &smallest.to_string()]), train(&[job, "--budget", "1GiB"]));
    assert_eq!(losses(&low), losses(&high), "bit for bit");

    let disk = format!("{}:1GiB", folder.path().display());
    let plan = &events(&["plan", job, "--budget", "1GiB", "--disk", &disk, "--json"])[0];
    let with_disk = plan["bytes_smallest_budget"].as_u64().unwrap();
    assert!(with_disk <= smallest, "{with_disk} and {smallest}");
    let on_disk = train(&[job, "--budget", &with_disk.to_string(), "--disk", &disk]);
    assert_eq!(losses(&on_disk), losses(&high), "bit for bit");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left on the disk but the job");
}

#[test]
fn plan_and_batch_answer_programs() {
    let job = example("six-convolutions.toml");
    let plan = &events(&["plan", &job, "--budget", "2GiB", "--json"])[0];
    for key in [
        "fits",
        "budget",
        "bytes_peak",
        "bytes_arena",
        "bytes_bound",
        "bytes_runtime",
        "held",
        "batch",
        "micro_batch",
        "micro_batches",
        "bytes_smallest_budget",
        "seconds_planning",
    ] {
        assert!(!plan[key].is_null(), "{key} is missing in {plan}");
    }
    for kind in ["weights", "gradients", "optimizer", "activations", "workspace", "input"] {
        assert!(plan["held"][kind].is_u64(), "{kind} is missing in {plan}");
    }
    let batch = &events(&["batch", &job, "--budget", "8GiB", "--json"])[0];
    let largest = batch["largest_batch"].as_u64().unwrap();
    let unsplit = &events(&["plan", &job, "--budget", "8GiB", "--batch", &largest.to_string(), "--json"])[0];
    assert_eq!((&unsplit["micro_batches"], &unsplit["time_relative"]), (&1.into(), &1.0.into()));
    // One row more means a split, or a recomputation, or a second feed of the input.
    let more =
        &events(&["plan", &job, "--budget", "8GiB", "--batch", &(largest + 1).to_string(), "--json"])[0];
    assert!(more["micro_batches"] != 1 || 1.0 < more["time_relative"].as_f64().unwrap(), "{more}");
}

/// Layers whose activations are large compared with their weights, in a batch that is split or recomputed
/// below 64 MiB.
fn tight(folder: &Path) -> String {
    let layer = "[[model.layers]]\nclass = \"Conv2D\"\nfilters = 8\nkernel_size = 3\nactivation = \"relu\"\n";
    let text = format!(
        "[[model.layers]]\nclass = \"Input\"\nshape = [64, 64, 3]\n{}[[model.layers]]\nclass = \"Flatten\"\n\
         [[model.layers]]\nclass = \"Dense\"\nunits = 3\n\
         [train]\nloss = \"mse\"\noptimizer = \"adam\"\nbatch = 64\nsteps = 1\n[memory]\nbudget = \"40MiB\"\n",
        layer.repeat(4)
    );
    let path = folder.join("tight.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_first_plan_that_fits_fits_and_is_no_faster_than_the_fastest() {
    let folder = tempfile::tempdir().unwrap();
    let job = tight(folder.path());
    let costs = ["--json", "--costs", "analytic"];
    for budget in ["30MiB", "40MiB", "80MiB"] {
        let plan = |more: &[&str]| {
            let arguments = [&["plan", &job, "--budget", budget][..], &costs, more].concat();
            events(&arguments)[0].clone()
        };
        let (fastest, first) = (plan(&[]), plan(&["--first"]));
        assert!(fastest["fits"] == true && first["fits"] == true, "{budget}: {first}");
        let time = |plan: &Value| plan["time_relative"].as_f64().unwrap();
        assert!(time(&fastest) <= time(&first) + 1e-9, "{budget}: {} and {}", time(&fastest), time(&first));
    }
    train(&[&job, "--first", "--costs", "analytic"]);
    let refused = memfit(&["plan", &job, "--budget", "14MiB", "--first", "--json"]);
    assert_eq!(refused.status.code(), Some(3), "below the smallest budget it says what every plan says");
}

/// A network that is planned on several threads, whose heaps are part of what the process holds.
#[test]
fn a_network_of_many_nodes_trains_at_its_smallest_budget_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "[[model.layers]]\nclass = \"Input\"\nshape = [16, 16, 8]\n".to_owned();
    for _ in 0..40 {
        text += "[[model.layers]]\nclass = \"Conv2D\"\nfilters = 8\nkernel_size = 3\npadding = \"same\"\n\
                 [[model.layers]]\nclass = \"BatchNormalization\"\n[[model.layers]]\nclass = \"ReLU\"\n";
    }
    text += "[[model.layers]]\nclass = \"GlobalAveragePooling2D\"\n[[model.layers]]\nclass = \"Dense\"\nunits = 3\n\
             [train]\nloss = \"mse\"\noptimizer = \"sgd\"\nbatch = 16\nsteps = 2\n";
    let path = folder.path().join("many.toml");
    std::fs::write(&path, text).unwrap();
    let job = path.to_str().unwrap();
    let plan = &events(&["plan", job, "--budget", "1GiB", "--json", "--costs", "analytic"])[0];
    let smallest = plan["bytes_smallest_budget"].as_u64().unwrap();
    for more in [0, 1 << 19, 1 << 20, 1 << 21] {
        train(&[job, "--budget", &(smallest + more).to_string(), "--costs", "analytic"]);
    }
}

/// The only file of the cache.
fn cache_file(cache: &Path) -> PathBuf {
    let files: Vec<_> =
        std::fs::read_dir(cache.join("memfit")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_second_run_measures_nothing_and_plans_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (job, cache) = (tight(folder.path()), folder.path().join("cache"));
    let arguments = ["train", &job, "--json"];
    let train = || lines(&memfit_cached(&arguments, &cache)).pop().unwrap();
    // However busy the machine is, every start measures some of what is missing.
    let mut cold = train();
    assert!(cold["seconds_measuring"].as_f64().unwrap() > 0.0, "{cold}");
    let mut warm = train();
    for _ in 0..20 {
        if warm["seconds_measuring"] == 0.0 {
            break;
        }
        (cold, warm) = (warm, train());
    }
    let file = std::fs::read(cache_file(&cache)).unwrap();
    for end in [&cold, &warm] {
        assert_eq!(end["costs"], "measured");
        assert!(end["vm_hwm"].as_u64() <= end["budget"].as_u64(), "{end}");
        assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"]);
    }
    assert_eq!(warm["seconds_measuring"], 0.0);
    for key in ["seconds_step", "bytes_peak_predicted", "loss"] {
        assert_eq!(cold[key], warm[key], "{key}");
    }
    assert_eq!(file, std::fs::read(cache_file(&cache)).unwrap(), "what is whole is left alone");
    let analytic = lines(&memfit_cached(&["plan", &job, "--costs", "analytic", "--json"], &cache));
    assert_eq!((&analytic[0]["costs"], &analytic[0]["seconds_measuring"]), (&"analytic".into(), &0.0.into()));
}

#[test]
fn a_cache_that_is_broken_or_cannot_be_written_is_no_reason_to_fail() {
    let folder = tempfile::tempdir().unwrap();
    let (job, cache) = (tight(folder.path()), folder.path().join("cache"));
    let arguments = ["plan", &job, "--json"];
    let plan = |cache: &Path| lines(&memfit_cached(&arguments, cache)).pop().unwrap();
    plan(&cache);
    let file = cache_file(&cache);
    let keys = || std::fs::read_to_string(&file).map_or(0, |text| text.matches("\"key\"").count());
    assert!(keys() > 0);
    for broken in [&b"\xFF\x00 no JSON"[..], b"{\"key\": \"conv2d", b""] {
        std::fs::write(&file, broken).unwrap();
        let answer = plan(&cache);
        assert!(answer["seconds_measuring"].as_f64().unwrap() > 0.0, "{answer}");
        assert!(keys() > 1, "it is written again");
    }
    let nowhere = folder.path().join("file");
    std::fs::write(&nowhere, "").unwrap();
    assert_eq!(plan(&nowhere)["costs"], "measured");
}

#[test]
fn nothing_is_measured_where_no_choice_hangs_on_time() {
    let folder = tempfile::tempdir().unwrap();
    let (job, cache) = (tight(folder.path()), folder.path().join("cache"));
    let plan = |more: &[&str]| {
        let arguments = [&["plan", &job, "--json"], more].concat();
        serde_json::from_slice::<Value>(&memfit_cached(&arguments, &cache).stdout).unwrap()
    };
    let refused = plan(&["--budget", "1MiB"]);
    assert_eq!((&refused["costs"], &refused["seconds_measuring"]), (&"analytic".into(), &0.0.into()));
    let arguments = ["train", &job, "--budget", "1GiB", "--steps", "1", "--json"];
    let trained = lines(&memfit_cached(&arguments, &cache));
    let end = trained.last().unwrap();
    assert_eq!((&end["costs"], &end["seconds_measuring"]), (&"analytic".into(), &0.0.into()));
    assert!(!cache.exists());
    // A plan says how long a step takes, so it looks at the clock for a moment also where everything fits.
    assert_eq!(plan(&["--budget", "1GiB"])["costs"], "measured");
    let sweep = plan(&["--budget", "1GiB", "--sweep"]);
    assert_eq!(sweep["costs"], "measured");
    let points = sweep["points"].as_array().unwrap();
    let smallest = plan(&["--budget", "1GiB"])["bytes_smallest_budget"].clone();
    assert_eq!(points.last().unwrap()["budget"], smallest, "what fits at all does not hang on a clock");
}

#[test]
fn the_time_of_a_step_does_not_jump_where_the_whole_batch_fits() {
    let cache = tempfile::tempdir().unwrap();
    let job = example("accumulate.toml");
    let plan = |budget: u64| {
        let budget = format!("{budget}B");
        let arguments = ["plan", &job, "--budget", &budget, "--device", "cpu", "--json"];
        lines(&memfit_cached(&arguments, cache.path())).remove(0)
    };
    let whole = plan(1 << 30);
    let least = whole["bytes_arena"].as_u64().unwrap() + whole["bytes_runtime"].as_u64().unwrap();
    // What is not known yet is measured, a little at each start.
    for _ in 0..20 {
        if plan(least - 500_000)["seconds_measuring"] == 0.0 {
            break;
        }
    }
    let (split, whole) = (plan(least - 500_000), plan(least));
    assert_eq!(whole["micro_batches"], 1, "{whole}");
    assert!(1 < split["micro_batches"].as_u64().unwrap(), "{split}");
    let seconds = |plan: &Value| plan["seconds_step"].as_f64().unwrap();
    let ratio = seconds(&split) / seconds(&whole);
    assert!((0.5..2.0).contains(&ratio), "{ratio} times as long: {split} and {whole}");
}
