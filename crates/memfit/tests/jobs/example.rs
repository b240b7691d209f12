//! The example in one file runs, and its own claims hold.

#[path = "../../../../examples/one_file.rs"]
mod one_file;

#[test]
fn the_idea_in_one_file_holds() {
    one_file::main();
}
