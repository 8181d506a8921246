//! The computation: products of square matrices of f64 (dgemm), by `matrixmultiply`, single-threaded.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ndarray::Array2;
use ndarray::linalg::general_mat_mul;

/// Multiplications that a calibration makes at least.
const MIN_TIMED: u32 = 3;

/// Two matrices and their product.
pub struct Matrices {
    left: Array2<f64>,
    right: Array2<f64>,
    product: Array2<f64>,
}

impl Matrices {
    /// Bytes of the matrices of a task.
    pub fn bytes(order: u32) -> u64 {
        (3 * size_of::<f64>() as u64).saturating_mul(u64::from(order).saturating_mul(order.into()))
    }

    /// Matrices of `order` rows and columns.
    pub fn new(order: usize) -> Self {
        let entries = |salt: usize| {
            Array2::from_shape_fn((order, order), |(row, column)| {
                0.5 + ((row * 31 + column * 17 + salt) % 64) as f64 / 64.0
            })
        };
        Self { left: entries(1), right: entries(2), product: Array2::zeros((order, order)) }
    }

    /// Multiplies so often. Half of the product before is kept, scaled so that entries stay of one size: no multiplication can
    /// be left out for being like another.
    pub fn multiply(&mut self, times: u32) {
        let scale = 1.0 / self.left.nrows() as f64;
        for _ in 0..times {
            general_mat_mul(scale, &self.left, &self.right, 0.5, &mut self.product);
            black_box(&self.product);
        }
    }

    /// The mean time of a multiplication while they are made for so long: what other tasks take of a shared CPU is in it, as it
    /// will be in the application's computing.
    pub fn time_one(&mut self, while_for: Duration) -> Duration {
        let (begun, mut made) = (Instant::now(), 0);
        while made < MIN_TIMED || begun.elapsed() < while_for {
            self.multiply(1);
            made += 1;
        }
        begun.elapsed() / made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_that_of_the_definition() {
        let order = 37;
        let mut matrices = Matrices::new(order);
        matrices.multiply(2);
        for row in [0, 5, 36] {
            for column in [0, 7, 36] {
                let sum: f64 =
                    (0..order).map(|k| matrices.left[[row, k]] * matrices.right[[k, column]]).sum();
                let expected = 1.5 * sum / order as f64;
                assert!((matrices.product[[row, column]] - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn entries_stay_of_one_size_however_often_they_are_multiplied() {
        let mut matrices = Matrices::new(8);
        matrices.multiply(1000);
        assert!(matrices.product.iter().all(|entry| (0.1..10.0).contains(entry)));
    }
}
