//! Graphs, problems and plans as text: parsed back they are the same, and no text makes the parser panic.

use memfit::DeviceChoice as Choice;
use memfit_grad::{Optimizer, Training};
use memfit_ir::{
    Bytes, Graph, Initializer, NodeId, Pinned, Plan, Problem, Region, TensorId, TextError, check, random,
};
use memfit_plan::solved;
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::harness::problem;
use memfit_testkit::op_cases::op_cases;
use memfit_testkit::random_training::{random_problem, with_budget};

fn check_graph(graph: &Graph, what: &str) {
    let text = graph.to_text();
    let read = Graph::from_text(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_eq!(read.to_text(), text, "{what}");
    assert_eq!(read, *graph, "{what}");
}

fn check_problem(problem: &Problem, what: &str) -> String {
    let text = problem.to_text();
    let read = Problem::from_text(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_eq!(read.to_text(), text, "{what}");
    assert_eq!(read, *problem, "{what}");
    text
}

fn check_plan(plan: &Plan, what: &str) -> String {
    let text = plan.to_text();
    let read = Plan::from_text(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_eq!(read.to_text(), text, "{what}");
    assert_eq!(read, *plan, "{what}");
    text
}

#[test]
fn graphs_of_every_op_and_type_are_read_as_they_were_written() {
    for (name, graph) in device_graphs() {
        check_graph(&graph, &name);
    }
    for case in op_cases() {
        check_graph(&case.forward, &case.name);
    }
}

#[test]
fn random_problems_and_their_plans_are_read_as_they_were_written() {
    for seed in 0..40 {
        let what = format!("seed {seed}");
        let whole = random_problem(Choice::Cpu, seed, seed % 3 == 0);
        check_problem(&whole, &what);
        let smallest = memfit_plan::smallest_budget(&whole);
        for share in [0, 1, 4] {
            let tight = with_budget(&whole, Bytes(smallest.0 + smallest.0 * share / 8));
            let read = Problem::from_text(&check_problem(&tight, &what)).expect("it was written as it is");
            let plan = memfit_plan::plan(&tight).expect("it fits from its smallest budget on");
            let text = check_plan(&plan, &what);
            let replayed = memfit_plan::plan(&read).expect("the same problem has the same answer");
            assert_eq!(replayed.to_text(), text, "{what}");
            check(&read, Plan::from_text(&text).expect("it was written as it is"))
                .expect("it is a plan of it");
            check_problem(&solved(&tight, &plan), &what);
        }
    }
}

#[test]
fn what_is_pinned_of_a_plan_is_read_as_it_was_written() {
    let region = Region { boundary: TensorId(2), slices: 3, keeps: true };
    for pinned in [
        Pinned::default(),
        Pinned { micro_batch: Some(2), ..Pinned::default() },
        Pinned { region: Some(None), ..Pinned::default() },
        Pinned { region: Some(Some(region)), algorithms: vec![(NodeId(1), Bytes(64))], micro_batch: Some(3) },
    ] {
        let problem = Problem { pinned, ..small_problem() };
        check_problem(&problem, "pinned");
    }
}

#[test]
fn floats_names_and_numbers_at_the_edge_keep_all_bits() {
    let mut graph = Graph::default();
    for name in ["", "a b", "quote \" and \\ and {[(=@", "line\nbreak\r\t\0", "größe 層 \u{2028}", "-", "end"]
    {
        graph.layer(name);
    }
    let values = [0.0, -0.0, 1e-45, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, 0.1];
    let bits = values.map(f32::to_bits).into_iter().chain([0x7fc0_0000, 0xffc0_0001, 0x7f80_0001]);
    let layer = memfit_ir::LayerId(0);
    for (index, bits) in bits.enumerate() {
        let shape = memfit_ir::Shape::fixed([index]);
        let kind = memfit_ir::Kind::Weight { trainable: index % 2 == 0 };
        let tensor = graph.tensor(format!("w{index}"), shape, memfit_ir::DType::F32, kind, layer);
        let low = f32::from_bits(bits);
        graph.initial.push((tensor, Initializer::Uniform { low, high: 1.0, seed: u64::MAX - bits as u64 }));
    }
    let text = graph.to_text();
    let read = Graph::from_text(&text).expect("what was written is read");
    assert_eq!(read.to_text(), text);
    assert_eq!(read.layers, graph.layers);
    let bits_of = |graph: &Graph| -> Vec<(u32, u64)> {
        let bits = |(_, initial): &(TensorId, Initializer)| match initial {
            Initializer::Uniform { low, seed, .. } => (low.to_bits(), *seed),
            Initializer::Constant(_)
            | Initializer::Normal { .. }
            | Initializer::Ones { .. }
            | Initializer::Orthogonal { .. }
            | Initializer::TruncatedNormal { .. } => panic!("all are uniform"),
        };
        graph.initial.iter().map(bits).collect()
    };
    assert_eq!(bits_of(&read), bits_of(&graph));
}

fn small_problem() -> Problem {
    let case =
        op_cases().into_iter().find(|case| case.name == "residual branches").expect("a case of the table");
    let training = Training { losses: vec![case.loss], ..Training::new(Optimizer::adam()) };
    problem(&case.forward, &training, 3)
}

#[test]
fn a_wrong_text_is_an_error_with_its_line() {
    let problem = small_problem();
    let text = problem.to_text();
    let line_of =
        |start: &str| 1 + text.lines().position(|line| line.starts_with(start)).expect("a line of the text");
    let line_with =
        |part: &str| 1 + text.lines().position(|line| line.contains(part)).expect("a line of the text");
    let cases: Vec<(String, usize, &str)> = vec![
        (String::new(), 1, "this is no problem"),
        (problem.graph.to_text(), 1, "this is no problem"),
        (text.replacen("problem 3", "problem 4", 1), 1, "version `4` of the format"),
        (text.replacen("batch 3", "batch 0", 1), 2, "a batch of no rows"),
        (text.replacen("batch 3", "batch 99999999999999999999", 1), 2, "is no usize"),
        (text.replacen("granule=", "granules=", 1), 3, "expected `granule=`"),
        (text.replacen("op=Zero ", "op=Zer ", 1), line_with("op=Zero "), "`Zer` is no Op"),
        (text.replacen("node 1 ", "node 2 ", 1), line_of("node 1 "), "expected node 1, found 2"),
        (text.replacen("inputs [", "inputs [9999 ", 1), line_of("inputs"), "tensor 9999 of"),
        (
            text.replacen("shape=[batch ", "shape=[batch 99999999999999999 ", 1),
            text.lines().count() - 1,
            "overflow",
        ),
        (
            text.replacen("nanos_fixed=", "nanos_fixed=NaN:7ff8000000000000 ", 1),
            line_of("cost 0"),
            "expected",
        ),
        (text.replacen("end\n", "", 1), text.lines().count(), "expected `end`"),
        (text.trim_end().to_owned(), text.lines().count() + 1, "a line break is missing"),
        (format!("{text}more"), text.lines().count() + 1, "something follows"),
    ];
    for (index, (text, line, problem)) in cases.into_iter().enumerate() {
        let error = Problem::from_text(&text).expect_err("the text is wrong");
        assert!(error.line == line && error.problem.contains(problem), "case {index}: {error}");
    }
}

#[test]
fn every_truncated_text_is_an_error() {
    let text = small_problem().to_text();
    let graph = small_problem().graph.to_text();
    for end in (0..text.len()).step_by(7).filter(|end| text.is_char_boundary(*end)) {
        let TextError { line, .. } = Problem::from_text(&text[..end]).expect_err("the end is missing");
        assert!(line <= text[..end].split('\n').count() + 1, "{end}");
    }
    for end in (0..graph.len()).step_by(3).filter(|end| graph.is_char_boundary(*end)) {
        Graph::from_text(&graph[..end]).expect_err("the end is missing");
    }
}

#[test]
fn mutated_texts_are_errors_or_values_that_print_as_they_parse() {
    let whole = small_problem();
    let smallest = memfit_plan::smallest_budget(&whole);
    let problem = with_budget(&whole, Bytes(smallest.0 + 1000));
    let plan = memfit_plan::plan(&problem).expect("it fits from its smallest budget on");
    let (problem, graph, plan) = (problem.to_text(), problem.graph.to_text(), plan.to_text());
    let mut read = 0;
    for seed in 0..6_000 {
        if let Ok(value) = Problem::from_text(&mutated(&problem, seed)) {
            // What parses has an answer too.
            if value.batch <= 64 && memfit_plan::may_pin(&value).is_ok() {
                let _ = memfit_plan::plan(&value);
            }
            assert_eq!(
                Problem::from_text(&value.to_text()).expect("it was written").to_text(),
                value.to_text()
            );
            read += 1;
        }
        if let Ok(value) = Graph::from_text(&mutated(&graph, seed)) {
            assert_eq!(
                Graph::from_text(&value.to_text()).expect("it was written").to_text(),
                value.to_text()
            );
        }
        if let Ok(value) = Plan::from_text(&mutated(&plan, seed)) {
            assert_eq!(Plan::from_text(&value.to_text()).expect("it was written").to_text(), value.to_text());
        }
    }
    assert!(100 < read, "{read} of the mutated problems were read: too few to say anything");
}

/// A text with a few changes that are drawn from a seed: characters, numbers and whole lines.
fn mutated(text: &str, seed: u64) -> String {
    let mut next = 0;
    let mut draw = |below: usize| {
        next += 1;
        (random::bits(seed, next) % below.max(1) as u64) as usize
    };
    let mut text = text.to_owned();
    for _ in 0..draw(3) + 1 {
        let mut lines: Vec<&str> = text.split('\n').collect();
        let (line, other) = (draw(lines.len()), draw(lines.len()));
        let changed;
        match draw(6) {
            0 => lines.swap(line, other),
            1 => {
                lines.remove(line);
            }
            2 => lines.insert(other, lines[line]),
            _ => {
                changed = mutated_line(lines[line], &mut draw);
                lines[line] = &changed;
            }
        }
        text = lines.join("\n");
    }
    text
}

fn mutated_line(line: &str, draw: &mut impl FnMut(usize) -> usize) -> String {
    let numbers = ["0", "1", "2", "7", "18446744073709551615", "4294967296", "-1", "1e300", "NaN", "-"];
    let mut characters: Vec<char> = line.chars().collect();
    let at = draw(characters.len());
    let is_digit = |character: &char| character.is_ascii_digit();
    match characters[at..].iter().position(is_digit) {
        Some(start) if draw(3) != 0 => {
            let start = at + start;
            let length = characters[start..].iter().take_while(|character| is_digit(character)).count();
            characters.splice(start..start + length, numbers[draw(numbers.len())].chars());
        }
        _ if characters.is_empty() => characters.push('['),
        _ => characters[at] = [' ', '[', ']', '{', '}', '=', '"', '@', '\\', 'é', '9'][draw(11)],
    }
    characters.into_iter().collect()
}
