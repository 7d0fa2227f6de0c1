//! Ranks are divided into parts: the leader of a machine's ranks hands each of them its end of the
//! sockets inside its part. Ranks of different machines have [streams](super::streams).
//!
//! No name is needed and no rank waits to be found, so the end of a rank is a closed socket as in
//! every round.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use wm_sockets::packet::DESCRIPTORS;

use super::roster::Roster;
use super::wire::{Part, RankFrame};
use crate::error::{Error, Result};

/// Color and key of each rank, by rank.
pub type Colors = [(i32, i32)];

/// The color of a rank that goes into no part.
pub const NO_COLOR: i32 = -1;

/// The ranks of one color, by their numbers in the part: in the order of keys, and of ranks where
/// keys are alike.
pub fn ranks_of(colors: &Colors, color: i32) -> Vec<usize> {
    let mut ranks: Vec<_> = (0..colors.len()).filter(|rank| colors[*rank].0 == color).collect();
    ranks.sort_by_key(|rank| (colors[*rank].1, *rank));
    ranks
}

/// All parts.
fn parts_of(colors: &Colors) -> Vec<Vec<usize>> {
    let mut all: Vec<_> = colors.iter().map(|(color, _)| *color).filter(|color| *color != NO_COLOR).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|color| ranks_of(colors, color)).collect()
}

/// One rank's connections to ranks of its machine and its part: of the first of these ranks to all
/// others in their order, of every other rank to the first.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    pub(super) sockets: Vec<UnixStream>,
    /// The lives of the processes at the other ends, as far as they are known.
    pub(super) lives: Vec<Option<OwnedFd>>,
}

impl Dealt {
    fn add(&mut self, socket: UnixStream, life: Option<&OwnedFd>) -> io::Result<()> {
        self.sockets.push(socket);
        self.lives.push(life.map(OwnedFd::try_clone).transpose()?);
        Ok(())
    }

    /// As the part of a round: which lives are known, the sockets, then those lives.
    pub(super) fn into_part(mut self) -> Part {
        // A frame has room for all sockets; the lives are a help.
        if self.sockets.len() * 2 > DESCRIPTORS {
            self.lives.fill_with(|| None);
        }
        let bytes = self.lives.iter().map(|life| u8::from(life.is_some())).collect();
        let sockets = self.sockets.into_iter().map(OwnedFd::from);
        let descriptors = sockets.chain(self.lives.into_iter().flatten()).collect();
        Part { bytes, descriptors }
    }

    pub(super) fn of_part(part: Part) -> Option<Self> {
        let mut descriptors = part.descriptors.into_iter();
        let sockets: Vec<_> = descriptors.by_ref().take(part.bytes.len()).map(UnixStream::from).collect();
        let life = |is_known: &u8| if *is_known == 0 { Some(None) } else { descriptors.next().map(Some) };
        let lives = part.bytes.iter().map(life).collect::<Option<Vec<_>>>()?;
        (sockets.len() == lives.len()).then_some(Self { sockets, lives })
    }
}

/// The connections of a leader's ranks, by rank; other ranks get none. Each frame brings the life
/// of its rank.
pub(super) fn deal(
    colors: &Colors,
    roster: &Roster,
    leader: usize,
    frames: &[RankFrame],
) -> io::Result<Vec<Dealt>> {
    let mut dealt: Vec<_> = frames.iter().map(|_| Dealt::default()).collect();
    for mut part in parts_of(colors) {
        part.retain(|rank| roster.leader(*rank) == leader);
        let Some((first, others)) = part.split_first() else { continue };
        for other in others {
            let (here, there) = UnixStream::pair()?;
            dealt[*first].add(here, frames[*other].descriptor())?;
            dealt[*other].add(there, frames[*first].descriptor())?;
        }
    }
    Ok(dealt)
}

/// Does a part have ranks of several machines?
pub(super) fn span(colors: &Colors, roster: &Roster) -> bool {
    parts_of(colors).iter().any(|part| part.iter().any(|rank| !roster.are_together(*rank, part[0])))
}

/// Checks that the connections of a split can be opened, before any rank counts on them: to `ranks`
/// ranks of this machine, and to `machines` others.
pub(super) fn have_room(is_leader: bool, ranks: usize, machines: usize) -> Result {
    if ranks > DESCRIPTORS {
        return Err(Error::Value(format!("{ranks} ranks: at most {DESCRIPTORS} can be divided")));
    }
    let null = std::fs::File::open("/dev/null")?;
    // Connections and lives of all others; a leader has both ends, and the lives as they came and
    // for both ends. A stream for each machine, and a listener.
    let count = if is_leader { 5 * ranks } else { 2 * ranks } + machines + 1;
    let room = (0..count).map(|_| null.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>();
    room.map(drop).map_err(|error| Error::System(format!("no descriptors for a split: {error}")))
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a rank that gets another part's connection.
    use super::*;

    #[test]
    fn parts_are_numbered_by_key_then_rank() {
        let colors = [(1, 5), (0, 0), (1, 5), (NO_COLOR, 0), (1, -2)];
        assert_eq!(ranks_of(&colors, 1), [4, 0, 2]);
        assert_eq!(parts_of(&colors), [vec![1], vec![4, 0, 2]]);
    }
}
