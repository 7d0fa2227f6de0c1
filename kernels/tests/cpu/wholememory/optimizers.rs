//! Hazard (wrong result): an optimizer step changes a row twice or not at all, writes state beside
//! the row's, adds gradients in another order, or advances a row's beta powers twice. Each
//! optimizer is compared with f64 arithmetic over several steps.

use wm_kernels::Arguments;
use wm_kernels::wholememory::{
    AdaGrad, AdvancePowers, Gradients, LazyAdam, OptimizeAdagrad, OptimizeLazyAdam, OptimizeRmsprop,
    OptimizeSgd, Powers, RmsProp, RowNames, Sgd, Step, Strided,
};

use super::support::{Draws, WARPS};
use super::types::{BF16, FLOAT, HALF, Value, encode, float, size};
use crate::support::{read, run, written};

const ROWS: usize = 37;
const RATE: f32 = 0.05;
const DECAY: f32 = 0.01;
const EPSILON: f32 = 1e-8;
const BETAS: (f32, f32) = (0.9, 0.999);
const ALPHA: f32 = 0.99;

/// A float between -1 and 1.
fn fraction(draws: &mut Draws) -> f32 {
    draws.below(20_001) as f32 / 10_000.0 - 1.0
}

fn rows<T>(memory: &mut [T], stride: usize) -> Strided {
    Strided { address: written(memory), stride: stride as u64 }
}

fn names(touch: &Touch) -> RowNames {
    RowNames { rows: read(&touch.rows), count: read(&touch.count), rows_in_table: ROWS as u64 }
}

/// One embedding with three states of its shape and the powers, and the same in f64.
struct Embedding {
    kind: u32,
    columns: usize,
    stride: usize,
    table: Vec<u8>,
    states: [Vec<f32>; 3],
    powers: Vec<f32>,
    weights: Vec<f64>,
    model: [Vec<f64>; 2],
    touched: Vec<i32>,
}

/// One step's rows and gradients.
struct Touch {
    rows: Vec<i64>,
    gradients: Vec<f32>,
    gradient_columns: usize,
    /// Each row has one.
    order: Vec<u32>,
    starts: Vec<i64>,
    count: [i64; 1],
}

impl Embedding {
    fn new(draws: &mut Draws, kind: u32, columns: usize) -> Self {
        // Where rows allow words of four columns, half of the tables do not.
        let padded = match draws.below(2) {
            0 => columns.next_multiple_of(4),
            _ => columns + draws.below(4) as usize,
        };
        let weight = |draws: &mut Draws| encode(kind, Value::Float(f64::from(fraction(draws))));
        let table: Vec<u8> = (0..ROWS * padded).flat_map(|_| weight(draws)).collect();
        let weights = table.chunks(size(kind)).map(|bytes| float(kind, bytes)).collect();
        let zeros = || vec![0f32; ROWS * padded];
        let model = [vec![0f64; ROWS * padded], vec![0f64; ROWS * padded]];
        Self {
            kind,
            columns,
            stride: padded,
            table,
            states: [zeros(), zeros(), zeros()],
            powers: vec![1.0; ROWS * 2],
            weights,
            model,
            touched: vec![0; ROWS],
        }
    }

    fn touch(&self, draws: &mut Draws) -> Touch {
        let mut rows: Vec<i64> = (0..ROWS as i64).filter(|_| draws.below(2) == 0).collect();
        rows.extend([-1, ROWS as i64, i64::MAX]);
        let gradient_columns = match draws.below(2) {
            0 => self.columns.next_multiple_of(4),
            _ => self.columns + draws.below(3) as usize,
        };
        let gradients = (0..rows.len() * gradient_columns).map(|_| fraction(draws)).collect();
        let count = rows.len() as i64;
        Touch {
            rows,
            gradients,
            gradient_columns,
            order: (0..count as u32).collect(),
            starts: (0..=count).collect(),
            count: [count],
        }
    }

    /// Memory of vectors is at multiples of 16 bytes.
    fn lane_columns(&self, touch: &Touch) -> u32 {
        let all = [self.columns, self.stride, touch.gradient_columns];
        if all.iter().all(|columns| columns.is_multiple_of(4)) { 4 } else { 1 }
    }

    fn step(&mut self, touch: &Touch) -> Step {
        Step {
            table: rows(&mut self.table, self.stride * size(self.kind)),
            names: names(touch),
            starts: read(&touch.starts),
            gradients: Gradients {
                address: read(&touch.gradients),
                order: read(&touch.order),
                stride: touch.gradient_columns as u32 * 4,
                kind: FLOAT,
            },
            columns: self.columns as u64,
            table_type: self.kind,
            lane_columns: self.lane_columns(touch),
        }
    }

    fn state(&mut self, number: usize) -> Strided {
        rows(&mut self.states[number], self.stride * 4)
    }

    fn powers(&mut self) -> Powers {
        Powers { rows: rows(&mut self.powers, 8), beta1: BETAS.0, beta2: BETAS.1 }
    }

    /// Steps the model: `rule` gets weight, gradient and two states, and how often the row was
    /// touched.
    fn step_model(&mut self, touch: &Touch, rule: impl Fn(f64, f64, &mut f64, &mut f64, i32) -> f64) {
        for (i, row) in touch.rows.iter().enumerate().filter(|(_, row)| (0..ROWS as i64).contains(row)) {
            self.touched[*row as usize] += 1;
            for column in 0..self.columns {
                let at = *row as usize * self.stride + column;
                let gradient = f64::from(touch.gradients[i * touch.gradient_columns + column]);
                let [a, b] = &mut self.model;
                self.weights[at] =
                    rule(self.weights[at], gradient, &mut a[at], &mut b[at], self.touched[*row as usize]);
            }
        }
    }

    /// The table is near the model; then the model goes on from the table, so that errors do not
    /// add up.
    fn check(&mut self, what: &str) {
        let tolerance = match self.kind {
            FLOAT => 2e-5,
            HALF => 1.0 / 1024.0,
            _ => 1.0 / 128.0,
        };
        for (at, bytes) in self.table.chunks(size(self.kind)).enumerate() {
            let (found, expected) = (float(self.kind, bytes), self.weights[at]);
            let is_row = at % self.stride < self.columns;
            let error = (found - expected).abs();
            assert!(
                error <= if is_row { tolerance * expected.abs().max(1.0) } else { 0.0 },
                "{what} {found} {expected}"
            );
            self.weights[at] = found;
        }
    }
}

/// Four steps of one optimizer, for each type, several widths and shapes.
fn four_steps<A: Arguments>(
    what: &str,
    arguments: impl Fn(&mut Embedding, Step) -> A,
    rule: impl Fn(f64, f64, &mut f64, &mut f64, i32) -> f64 + Copy,
) {
    for kind in [FLOAT, HALF, BF16] {
        for (columns, shape) in
            [1, 3, 4, 5, 8, 31, 32, 33, 100, 128, 132, 260].into_iter().zip(WARPS.into_iter().cycle())
        {
            let draws = &mut Draws::new(columns as u64);
            let mut embedding = Embedding::new(draws, kind, columns);
            for _ in 0..4 {
                let touch = embedding.touch(draws);
                let step = embedding.step(&touch);
                run(shape, &arguments(&mut embedding, step));
                if what == "lazy adam" && columns > 32 * step.lane_columns as usize {
                    let (names, powers) = (names(&touch), embedding.powers());
                    run(shape, &AdvancePowers { names, powers });
                }
                embedding.step_model(&touch, rule);
                embedding.check(what);
            }
            for (row, touched) in embedding.touched.iter().enumerate() {
                let expected = [BETAS.0.powi(*touched), BETAS.1.powi(*touched)];
                let found = &embedding.powers[row * 2..][..2];
                let near = (0..2).all(|i| (found[i] - expected[i]).abs() < 1e-5);
                assert!(
                    near || (found == [1.0, 1.0] && what != "lazy adam"),
                    "{what}: {found:?}, {touched} steps"
                );
            }
        }
    }
}

#[test]
fn sgd_steps() {
    let rule = Sgd { rate: RATE, decay: DECAY };
    let arguments = |_: &mut Embedding, step| OptimizeSgd { step, rule };
    four_steps("sgd", arguments, |w, g, _, _, _| w - f64::from(RATE) * (g + f64::from(DECAY) * w));
}

#[test]
fn lazy_adam_steps_with_the_decay_on_either_side() {
    let betas = (f64::from(BETAS.0), f64::from(BETAS.1));
    for adam_w in [0, 1] {
        let rule = move |mut w: f64, mut g: f64, m: &mut f64, v: &mut f64, t: i32| {
            if adam_w == 1 {
                w -= f64::from(RATE) * f64::from(DECAY) * w;
            } else {
                g += f64::from(DECAY) * w;
            }
            *m = betas.0 * *m + (1.0 - betas.0) * g;
            *v = betas.1 * *v + (1.0 - betas.1) * g * g;
            let (mean, square) = (*m / (1.0 - betas.0.powi(t)), *v / (1.0 - betas.1.powi(t)));
            w - f64::from(RATE) * mean / (square.sqrt() + f64::from(EPSILON))
        };
        let arguments = |embedding: &mut Embedding, step| {
            let (m, v, powers) = (embedding.state(0), embedding.state(1), embedding.powers());
            let rule = LazyAdam { m, v, powers, rate: RATE, decay: DECAY, epsilon: EPSILON, adam_w };
            OptimizeLazyAdam { step, rule }
        };
        four_steps("lazy adam", arguments, rule);
    }
}

#[test]
fn rmsprop_steps() {
    let arguments = |embedding: &mut Embedding, step| {
        let v = embedding.state(0);
        let rule = RmsProp { v, rate: RATE, decay: DECAY, epsilon: EPSILON, alpha: ALPHA };
        OptimizeRmsprop { step, rule }
    };
    let alpha = f64::from(ALPHA);
    four_steps("rmsprop", arguments, |w, g, v, _, _| {
        let g = g + f64::from(DECAY) * w;
        *v = alpha * *v + (1.0 - alpha) * g * g;
        w - f64::from(RATE) * g / (v.sqrt() + f64::from(EPSILON))
    });
}

#[test]
fn adagrad_steps() {
    let arguments = |embedding: &mut Embedding, step| {
        let rule = AdaGrad { sums: embedding.state(2), rate: RATE, decay: DECAY, epsilon: EPSILON };
        OptimizeAdagrad { step, rule }
    };
    four_steps("adagrad", arguments, |w, g, sum, _, _| {
        let g = g + f64::from(DECAY) * w;
        *sum += g * g;
        w - f64::from(RATE) * g / (sum.sqrt() + f64::from(EPSILON))
    });
}
