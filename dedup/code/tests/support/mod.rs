//! Images that tests make.

/// How the content of an entry is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pack {
    None,
    Lz4,
    Zstd,
}

/// An entry to be written: kind (1 PTX, 2 cubin), architecture, packing and content.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) kind: u16,
    pub(crate) sm: u32,
    pub(crate) pack: Pack,
    pub(crate) content: Vec<u8>,
}

/// A fat binary as NVIDIA's `fatbinary` writes it.
pub(crate) fn container(entries: &[Written]) -> Vec<u8> {
    let body: Vec<u8> = entries.iter().flat_map(entry).collect();
    let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
    image.extend(1_u16.to_le_bytes());
    image.extend(16_u16.to_le_bytes());
    image.extend((body.len() as u64).to_le_bytes());
    image.extend(body);
    image
}

fn entry(written: &Written) -> Vec<u8> {
    let (flags, mut packed) = match written.pack {
        Pack::None => (0x11_u64, written.content.clone()),
        Pack::Lz4 => (0x2011, lz4_flex::block::compress(&written.content)),
        Pack::Zstd => (0x8011, zstd(&written.content)),
    };
    let packed_bytes = if written.pack == Pack::None { 0 } else { packed.len() as u32 };
    packed.resize(packed.len().next_multiple_of(8), 0);
    let mut head = written.kind.to_le_bytes().to_vec();
    head.extend(0x101_u16.to_le_bytes());
    head.extend(64_u32.to_le_bytes());
    head.extend((packed.len() as u64).to_le_bytes());
    head.extend(packed_bytes.to_le_bytes());
    head.extend(0_u32.to_le_bytes());
    head.extend([8_u16, 1].map(u16::to_le_bytes).concat());
    head.extend(written.sm.to_le_bytes());
    head.extend(0_u64.to_le_bytes());
    head.extend(flags.to_le_bytes());
    head.extend(0_u64.to_le_bytes());
    head.extend((written.content.len() as u64).to_le_bytes());
    [head, packed].concat()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}
