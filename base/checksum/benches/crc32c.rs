//! `cargo bench -p millrace-checksum`: gigabytes a second, beside tables and a plain loop over the bytes.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and
//! the highest. All buffers lie in the caches, but for the largest ones on small machines.

use std::hint::black_box;
use std::time::Instant;

use millrace_checksum::{crc32c, extend, implementation};

const POLYNOMIAL: u32 = 0x82f6_3b78;
#[path = "../src/table.rs"]
mod table;

const ROUNDS: usize = 9;
/// What each measurement reads in all.
const VOLUME: usize = 32 << 20;
const LENGTHS: [usize; 5] = [64, 512, 4 << 10, 64 << 10, 1 << 20];

/// One of the sides.
type Contestant = (&'static str, fn(&[u8]) -> u32);

/// One table, one byte a step.
fn byte_by_byte(bytes: &[u8]) -> u32 {
    static TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let (mut byte, mut register) = (0, 0_u32);
        while byte < 256 {
            let (mut entry, mut bit) = (register, 0);
            while bit < 8 {
                entry = (entry >> 1) ^ (POLYNOMIAL & (entry & 1).wrapping_neg());
                bit += 1;
            }
            table[byte] = entry;
            byte += 1;
            register += 1;
        }
        table
    };
    !bytes.iter().fold(!0_u32, |register, byte| {
        let place = register.to_le_bytes()[0] ^ byte;
        (register >> 8) ^ TABLE[usize::from(place)]
    })
}

/// Gigabytes a second.
fn measure(run: fn(&[u8]) -> u32, bytes: &[u8]) -> f64 {
    let times = VOLUME / bytes.len();
    let began = Instant::now();
    for _ in 0..times {
        black_box(run(black_box(bytes)));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let volume = (times * bytes.len()) as f64;
    volume / began.elapsed().as_secs_f64() / 1e9
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_unstable_by(f64::total_cmp);
    format!(
        "{:.2} ({:.2}-{:.2})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1]
    )
}

fn main() {
    let sides: [Contestant; 4] = [
        ("crc32c", crc32c),
        ("extend", |bytes| extend(0x1234_5678, bytes)),
        ("tables", |bytes| table::extend(0, bytes)),
        ("bytes", byte_by_byte),
    ];
    let buffer: Vec<u8> = (0..1_u32 << 20)
        .map(|i| ((i * i) >> 5).to_le_bytes()[0])
        .collect();
    println!("crc32c is: {}\n", implementation());
    println!("| what | GB/s, median (low-high) | ratio to tables | ratio to bytes |");
    println!("|---|---|---|---|");
    for length in LENGTHS {
        let bytes = &buffer[..length];
        let mut figures = sides.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for ((_, run), figures) in sides.iter().zip(&mut figures) {
                figures.push(measure(*run, bytes));
            }
        }
        let ratios = |own: &[f64], peer: &[f64]| {
            spread(own.iter().zip(peer).map(|(own, peer)| own / peer).collect())
        };
        for ((name, _), own) in sides.iter().zip(&figures) {
            println!(
                "| checksum/{name}/{length} | {} | {} | {} |",
                spread(own.clone()),
                ratios(own, &figures[2]),
                ratios(own, &figures[3])
            );
        }
    }
}
