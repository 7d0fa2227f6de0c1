//! Programs whose use of memory is known: training, inference, a network over a graph, and random
//! ones.
//!
//! Their frees come at once after the last use, as those of PyTorch's tensors do.

use wm_memory::tiers::CHUNK;

use super::story::{Story, StoryStep};

/// A story under way.
#[derive(Default)]
struct Teller {
    story: Story,
    live: u64,
}

impl Teller {
    fn allocate(&mut self, chunks: u64) -> u32 {
        let block = self.story.sizes.len() as u32;
        self.story.sizes.push(chunks * CHUNK);
        self.story.steps.push(StoryStep::Allocate { block });
        self.live += chunks * CHUNK;
        self.story.peak = self.story.peak.max(self.live);
        block
    }

    fn free(&mut self, block: u32) {
        self.live -= self.story.sizes[block as usize];
        self.story.steps.push(StoryStep::Free { block });
    }

    fn launch(&mut self, blocks: &[u32]) {
        let mut blocks = blocks.to_vec();
        blocks.sort_unstable();
        blocks.dedup();
        self.story.steps.push(StoryStep::Launch { set: self.story.sets.len() as u32 });
        self.story.sets.push(blocks.into());
        self.story.launches += 1;
    }

    fn wait(&mut self) {
        self.story.steps.push(StoryStep::Wait);
    }

    fn end(self) -> Story {
        self.story
    }
}

/// Layers forward and backward, their activations kept for the way back, and an optimizer with
/// state.
pub(super) fn training(layers: usize, steps: usize) -> Story {
    let mut teller = Teller::default();
    let weights: Vec<_> = (0..layers).map(|_| teller.allocate(8)).collect();
    let states: Vec<_> = (0..layers).map(|_| teller.allocate(16)).collect();
    for _ in 0..steps {
        let mut last = teller.allocate(12);
        let mut kept = vec![last];
        for weight in &weights {
            let (inner, next) = (teller.allocate(20), teller.allocate(12));
            teller.launch(&[*weight, last, inner]);
            teller.launch(&[inner, next]);
            kept.extend([inner, next]);
            last = next;
        }
        let mut gradient = teller.allocate(12);
        teller.launch(&[last, gradient]);
        let mut gradients = Vec::new();
        for layer in (0..layers).rev() {
            let (own, next) = (teller.allocate(8), teller.allocate(12));
            let (input, inner, output) = (kept[2 * layer], kept[2 * layer + 1], kept[2 * layer + 2]);
            teller.launch(&[gradient, output, inner]);
            teller.free(output);
            teller.launch(&[gradient, inner, input, own]);
            teller.free(inner);
            teller.launch(&[gradient, weights[layer], next]);
            teller.free(gradient);
            gradients.push(own);
            gradient = next;
        }
        [gradient, kept[0]].iter().for_each(|block| teller.free(*block));
        for (layer, own) in (0..layers).rev().zip(gradients) {
            teller.launch(&[weights[layer], states[layer], own]);
            teller.free(own);
        }
        teller.wait();
    }
    teller.end()
}

/// Weights that are used one layer after the other, token after token, and a cache that grows.
pub(super) fn inference(layers: usize, tokens: usize) -> Story {
    let mut teller = Teller::default();
    let weights: Vec<_> = (0..layers).map(|_| [teller.allocate(12), teller.allocate(24)]).collect();
    let caches: Vec<_> = (0..layers).map(|_| teller.allocate(2)).collect();
    for _ in 0..tokens {
        let mut last = teller.allocate(1);
        for layer in 0..layers {
            let (attention, next) = (teller.allocate(1), teller.allocate(1));
            teller.launch(&[weights[layer][0], caches[layer], last, attention]);
            teller.launch(&[weights[layer][1], attention, next]);
            [last, attention].iter().for_each(|block| teller.free(*block));
            last = next;
        }
        teller.free(last);
        teller.wait();
    }
    teller.end()
}

/// A few layers over all nodes of a graph: large blocks, each of them a good part of the device.
pub(super) fn graph_network(epochs: usize) -> Story {
    let mut teller = Teller::default();
    let (features, edges) = (teller.allocate(300), teller.allocate(80));
    let weights: Vec<_> = (0..3).map(|_| teller.allocate(1)).collect();
    for _ in 0..epochs {
        let mut outputs = vec![features];
        for weight in &weights {
            let (product, sum) = (teller.allocate(150), teller.allocate(150));
            teller.launch(&[*outputs.last().unwrap(), *weight, product]);
            teller.launch(&[edges, product, sum]);
            teller.free(product);
            outputs.push(sum);
        }
        let mut gradient = teller.allocate(150);
        teller.launch(&[outputs[3], gradient]);
        for layer in (0..3).rev() {
            teller.free(outputs[layer + 1]);
            let product = teller.allocate(150);
            teller.launch(&[edges, gradient, product]);
            teller.free(gradient);
            teller.launch(&[product, outputs[layer], weights[layer]]);
            gradient = teller.allocate(150);
            teller.launch(&[product, weights[layer], gradient]);
            teller.free(product);
        }
        teller.free(gradient);
        teller.wait();
    }
    teller.end()
}

/// A program without a plan: any block, any time. The steps are played `repeats` times, as a
/// period.
pub(super) fn random(seed: u64, steps: usize, repeats: usize) -> Story {
    let mut teller = Teller::default();
    let mut kept: Vec<_> = (0..4).map(|chunks| teller.allocate(1 + chunks)).collect();
    let persistent = kept.len();
    for _ in 0..repeats {
        let mut draw = Draw { seed, drawn: 0 };
        for _ in 0..steps {
            match draw.below(8) {
                0 | 1 if kept.len() < 24 => kept.push(teller.allocate(1 + draw.below(9))),
                2 if kept.len() > persistent => {
                    let spare = kept.len() - persistent;
                    teller.free(kept.swap_remove(persistent + draw.below(spare as u64) as usize));
                }
                3 => teller.wait(),
                _ => {
                    let set: Vec<_> =
                        (0..=draw.below(3)).map(|_| kept[draw.below(kept.len() as u64) as usize]).collect();
                    teller.launch(&set);
                }
            }
        }
        kept.drain(persistent..).for_each(|block| teller.free(block));
    }
    teller.end()
}

/// splitmix64. The bounds in the tests were measured on the programs of these sequences, so another
/// generator would shift them.
struct Draw {
    seed: u64,
    drawn: u64,
}

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        wm_kernels::pattern(self.seed, self.drawn - 1) % limit
    }
}
