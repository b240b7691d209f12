//! What the system counts: alone in its process, since other tests come and go with their memory.

use memfit_cpu::open;
use memfit_device::process;
use memfit_ir::Bytes;

#[test]
fn an_arena_is_resident_from_the_start_and_gone_with_its_device() {
    process::populate_program();
    process::trim();
    // The system counts in batches of pages.
    let noise = Bytes::mib(1);
    let size = Bytes(100 * (1 << 20) + 4096);
    let setup = open(Some(1)).unwrap();
    let before = process::resident();
    let device = setup.seal(size).unwrap();
    let during = process::resident();
    assert!(before + size <= during + noise && during <= before + size + noise, "{before}, then {during}");
    assert!(during <= process::resident_peak() + noise);
    drop(device);
    let after = process::resident();
    assert!(after <= before + noise, "{before}, then {after}");
    assert!(during <= process::resident_peak() + noise);
}
