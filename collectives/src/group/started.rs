//! Operations that are started, and go on while their caller does something else.

use std::panic::Location;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::{Group, Pending};
use crate::contract::Kind;
use crate::operation::{OperationSpec, Work};
use crate::{OperationError, Rank};

impl Group {
    /// Starts to replace `buffer`, on every rank, by the reduction of all ranks' buffers, and
    /// returns at once unless [the line is full](Self::start_operations); see
    /// [`all_reduce`](Self::all_reduce).
    ///
    /// Operations are carried out one after the other in the order in which they were called, those
    /// that were started and those that block alike.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let early = group.start_all_reduce(vec![1.0_f32; 4], ReduceOp::Sum)?;
    /// let late = group.start_all_reduce(vec![2.0_f32; 4], ReduceOp::Sum)?;
    /// // … compute something …
    /// assert_eq!(early.wait()?, [1.0; 4]);
    /// assert_eq!(late.wait()?, [2.0; 4]);
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`OperationError::Unsupported`] for an op that `T` does not have, [`OperationError::System`]
    /// when no thread can be started, [`OperationError::InsideOperations`]; what goes wrong later
    /// is told by [`Pending::wait`].
    #[track_caller]
    pub fn start_all_reduce<T, B>(
        &mut self,
        buffer: B,
        op: ReduceOp,
    ) -> Result<Pending<B>, OperationError>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        let (caller, reduction) = (Location::caller(), Reduction::new(op)?);
        self.start_operations(buffer, move |group, buffer| {
            let buffer = buffer.as_mut();
            let spec = OperationSpec::new(Kind::AllReduce, buffer.len()).with_op(op);
            let spec = spec.called_from(caller);
            let work = Work::Reduce {
                buffer,
                reduction,
                root: None,
            };
            group.perform(spec, work)
        })
    }

    /// Starts to replace `buffer`, on every rank, by the buffer of `root`, and returns at once
    /// unless [the line is full](Self::start_operations); see [`broadcast`](Self::broadcast) and
    /// [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    /// Those of [`start_all_reduce`](Self::start_all_reduce), and [`OperationError::RankOutside`].
    #[track_caller]
    pub fn start_broadcast<T, B>(
        &mut self,
        buffer: B,
        root: Rank,
    ) -> Result<Pending<B>, OperationError>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        self.check_rank(root)?;
        let caller = Location::caller();
        self.start_operations(buffer, move |group, buffer| {
            let buffer = buffer.as_mut();
            let spec = OperationSpec::new(Kind::Broadcast, buffer.len()).with_root(root);
            group.perform(spec.called_from(caller), Work::Broadcast { buffer, root })
        })
    }

    /// Starts to reduce all ranks' inputs, block `r` of it into the output of rank `r`, and returns
    /// at once unless [the line is full](Self::start_operations); see
    /// [`reduce_scatter`](Self::reduce_scatter) and [`start_all_reduce`](Self::start_all_reduce).
    /// Both buffers come back.
    ///
    /// # Errors
    /// Those of [`start_all_reduce`](Self::start_all_reduce); [`OperationError::Length`] by
    /// [`Pending::wait`].
    #[track_caller]
    pub fn start_reduce_scatter<T, I, O>(
        &mut self,
        input: I,
        output: O,
        op: ReduceOp,
    ) -> Result<Pending<(I, O)>, OperationError>
    where
        T: Element,
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        Reduction::<T>::new(op)?;
        let caller = Location::caller();
        self.start_operations((input, output), move |group, (input, output)| {
            let (input, output) = (input.as_ref(), output.as_mut());
            let spec = OperationSpec::new(Kind::ReduceScatter, input.len()).with_op(op);
            let blocks = group.even(output.len());
            group.fold_blocks(spec.called_from(caller), input, output, &blocks)
        })
    }

    /// Starts to give every rank the inputs of all, and returns at once unless
    /// [the line is full](Self::start_operations); see [`all_gather`](Self::all_gather) and
    /// [`start_all_reduce`](Self::start_all_reduce). Both buffers come back.
    ///
    /// # Errors
    /// [`OperationError::System`] when no thread can be started; what goes wrong later is told by
    /// [`Pending::wait`].
    #[track_caller]
    pub fn start_all_gather<T, I, O>(
        &mut self,
        input: I,
        output: O,
    ) -> Result<Pending<(I, O)>, OperationError>
    where
        T: Element,
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        let caller = Location::caller();
        self.start_operations((input, output), move |group, (input, output)| {
            let (input, output) = (input.as_ref(), output.as_mut());
            let spec = OperationSpec::new(Kind::AllGather, output.len()).called_from(caller);
            let blocks = group.even(input.len());
            group.gather_blocks(spec, input, Some(output), &blocks)
        })
    }

    /// Starts to give every rank a block from every rank, and returns at once unless
    /// [the line is full](Self::start_operations); see [`all_to_all`](Self::all_to_all) and
    /// [`start_all_gather`](Self::start_all_gather).
    ///
    /// # Errors
    /// Those of [`start_all_gather`](Self::start_all_gather); [`OperationError::NotDivisible`] by
    /// [`wait`](Pending::wait).
    #[track_caller]
    pub fn start_all_to_all<T, I, O>(
        &mut self,
        input: I,
        output: O,
    ) -> Result<Pending<(I, O)>, OperationError>
    where
        T: Element,
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        let caller = Location::caller();
        self.start_operations((input, output), move |group, (input, output)| {
            let (input, output) = (input.as_ref(), output.as_mut());
            let spec = OperationSpec::new(Kind::AllToAll, input.len()).called_from(caller);
            group.exchange_even_blocks(spec, input, output)
        })
    }
}
