//! Waiting futures, side by side in one allocation.

use std::pin::Pin;

/// A fixed number of places for futures. Boxing each future would add an allocation to every figure.
#[derive(Debug)]
pub struct Line<F> {
    places: Pin<Box<[Option<F>]>>,
}

impl<F> Line<F> {
    /// A line of empty places.
    pub fn new(places: usize) -> Self {
        Self { places: Box::into_pin((0..places).map(|_| None).collect()) }
    }

    /// Puts a future into a place, dropping the previous one.
    #[inline]
    pub fn put(&mut self, place: usize, future: F) -> Pin<&mut F> {
        self.place(place).set(Some(future));
        self.at(place)
    }

    /// The future in a place. Panics if the place is empty.
    #[inline]
    pub fn at(&mut self, place: usize) -> Pin<&mut F> {
        self.place(place).as_pin_mut().expect("there is a future in this place")
    }

    /// Drops the future in a place.
    #[inline]
    pub fn clear(&mut self, place: usize) {
        self.place(place).set(None);
    }

    #[inline]
    fn place(&mut self, place: usize) -> Pin<&mut Option<F>> {
        // SAFETY: the boxed slice is pinned, so its elements do not move; no element is handed out unpinned.
        unsafe { self.places.as_mut().map_unchecked_mut(|places| &mut places[place]) }
    }
}
