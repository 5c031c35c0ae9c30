//! The properties by name, each with its sentence of the contract. Every list is a macro that hands its
//! entries to another macro: to the table of [`properties`](crate::properties), and to the tests of
//! [`suite!`](crate::suite).

/// Commands on a lock of any mode that one id holds at a time.
#[macro_export]
#[doc(hidden)]
macro_rules! __lock {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// A name is free, or leased to one id until the id releases it or the lease expires: an attempt
            /// of another id is answered by the remaining lease, and changes nothing.
            name_is_leased_to_one_id
            /// A release, or a rollback, by an id that does not have the lock is answered by `NotHeld`, and
            /// changes nothing.
            release_by_another_id_finds_nothing
            /// A renewal has one answer for each lease, in order: true if the id still has its lock. A
            /// renewal leases no name to an id that does not have it.
            renewal_answers_for_each_lease_in_order
            /// No command but a release shortens a lease: an id that has the lock never shortens its lease by
            /// acquiring or renewing.
            no_command_but_a_release_shortens_a_lease
            /// A lease expires by itself, and not before its time. Then the name is free for others, and a
            /// renewal or a release of the expired lease finds nothing.
            lease_that_is_over_is_free_for_others
            /// Fencing tokens rise from one reservation of a name to the next, whichever id reserves;
            /// `acquire` reserves as many consecutive tokens as the request says.
            tokens_are_reserved_in_blocks_that_rise
            /// `force_release` frees the lock, whichever id holds it, and returns true if the lock was held.
            forced_release_frees_whichever_id_has_the_name
        }
        $crate::$to! { $with
            lock
            /// While an owner of one client has the lock, no other owner of any client gets it, and each
            /// client learns that the lock is held and for how long.
            another_owner_is_kept_out
            /// A release publishes a message on the channel of the name, which wakes the waiting clients: no
            /// waiter sleeps until a timer.
            waiter_is_woken_by_release
            /// Dropping a guard releases its lock, with a message like any release.
            dropped_guard_wakes_a_waiter
            /// A forced release wakes the waiting clients.
            force_unlock_wakes_a_waiter
            /// An owner that has the lock acquires it again at once; the name is free once every hold is
            /// released.
            same_owner_may_enter_again
            /// No command but a release shortens a lease: an inner hold does not.
            inner_hold_does_not_shorten_the_lease
            /// A lost lease stays lost: the same owner's next acquisition is a new one, untouched by the
            /// earlier guards.
            holds_that_are_lost_are_all_lost
            /// Commands of one id may be in flight side by side: the holds of an owner are counted right,
            /// whichever of its tasks acquire, release, or are dropped.
            tasks_of_one_owner_count_right
            /// All waiting tasks of an owner get in when the owner has the lock.
            task_gets_in_when_its_owner_does
            /// An acquisition with a time limit asks the store, whatever the client believes about the lock.
            short_wait_asks_the_store
            /// A command whose future is no longer polled delays no other command of the same id.
            unpolled_future_keeps_no_task_of_its_owner_waiting
            /// An id belongs to one client: owners of another client neither release the lock nor hold it.
            owner_of_another_client_is_refused
            /// Fencing tokens rise from one acquisition of a name to the next, whichever client acquires, and
            /// however the previous hold ended.
            tokens_rise_from_one_acquisition_to_the_next
            /// A release by an owner that does not have the lock fails, and changes nothing.
            unlock_without_hold_is_an_error
            /// A release names its lease: a guard whose lease was lost frees no later lease.
            guard_of_a_lost_hold_frees_no_other_hold
            /// An unrenewed lease expires after its time, and not before; then a waiter gets the lock.
            lease_ends_by_itself
            /// A renewal extends the lease by its full time from then on: a renewed lock is not lost.
            watchdog_keeps_the_lease
            /// The renewal of a lost lease says so, and the guard reports the loss.
            watchdog_notices_the_loss
            /// The extension of a lost lease says so.
            asking_tells_the_loss
            /// A lock held for longer than `max_hold` is released, and granted to the next waiter.
            lock_is_not_held_for_longer_than_allowed
            /// A wait ends at its limit, and leaves neither a lease, nor a position, nor a subscription.
            wait_ends_in_time_and_leaves_nothing
            /// A release that has begun completes, though its future is dropped.
            dropped_unlock_still_unlocks
            /// An `acquire` whose future is dropped is rolled back: wherever the drop happens, no lease, no
            /// position and no subscription is left, and the next waiter gets the lock.
            future_dropped_at_any_poll_leaves_nothing
            /// A dropped waiter that its own client handed the lock to is rolled back: no lease, no position
            /// and no subscription is left, and the next waiter gets the lock.
            successor_dropped_at_any_poll_leaves_nothing
            /// Waiters of one client are served first in, first out.
            waiters_are_served_in_the_order_in_which_they_came
            /// Mutual exclusion: of the tasks of two clients, no two hold the lock at a time, and each gets
            /// its turn.
            tasks_take_turns
        }
    };
}

/// Promises of a plain lock beyond those of every lock.
#[macro_export]
#[doc(hidden)]
macro_rules! __plain {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// `release` and `force_release` of a plain lock publish a message on its common channel, or its
            /// own without a common one, after the lock is free.
            release_is_published_to_subscribers
            /// A store that calls waiters calls the client that has waited longest, and the next one once
            /// that client has left.
            release_calls_the_client_that_has_waited_longest
        }
        $crate::$to! { $with
            lock
            /// A command that runs twice has the effect of one: leases last longer at most, tokens leave a
            /// gap, and the second release finds nothing.
            commands_that_run_twice_mean_the_same
            /// No command shortens a lease, so a short lease that follows a long one of the same client is a
            /// new lease, and expires in time for the waiters of other clients.
            short_lease_after_a_long_one_ends_in_time_for_other_clients
            /// Invalid names and lease times are refused before a command is sent.
            bad_names_and_leases_are_refused
            /// The lock and its channel use the mapped name.
            names_are_mapped
            /// Waiters of one client hand the lock off in memory, under one lease and with rising tokens.
            waiters_hand_the_lock_off_in_memory
            /// With a tenure of zero every waiter acquires the lock from the store.
            tenure_bounds_the_hand_offs
        }
    };
}

/// Promises of a fair lock beyond those of every lock.
#[macro_export]
#[doc(hidden)]
macro_rules! __fair {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// An id enters the queue with the first attempt that carries a position; an attempt without a
            /// position leaves nothing in the queue.
            attempt_without_a_position_does_not_queue
            /// A release grants the lock to the id in the queue that has waited longest, and notifies its
            /// client by a message on the client's own channel. Asking again does not move a position.
            queue_is_ordered_by_how_long_each_has_waited
        }
        $crate::$to! { $with
            fair
            /// The store has a queue of ids for each name, ordered by how long each has waited; as soon as
            /// the lock is free, the store grants it to the first of them.
            waiters_of_several_clients_are_served_in_arrival_order
            /// An attempt gets the lock if the lock is free and no other id in the queue comes first.
            newcomer_does_not_overtake
            /// A waiter that gives up is released and leaves the queue, without cost to the others.
            waiter_that_leaves_costs_the_others_nothing
            /// A waiter that gives up after the store granted it the lock is released, and the lock goes to
            /// the next of the queue.
            waiter_that_leaves_when_it_is_granted_the_lock_passes_it_on
            /// A grant lasts for the rest of the waiter's position: a dead client costs the others at most
            /// that time.
            unpolled_future_costs_the_others_the_life_of_its_position
            /// A granted lease is renewed like an acquired one.
            hold_that_was_granted_unasked_lasts
            /// A waiter's own lease time begins with the grant, and the lease expires after it.
            lease_of_its_own_begins_with_the_release
            /// Tokens rise from one acquisition to the next, whether the lock is acquired, granted by a
            /// message or handed off by a release.
            tokens_rise_however_the_lock_is_granted
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_refuse_each_other
            /// A forced release grants the lock to the first of the queue.
            forced_unlock_passes_on
            /// The id that has the lock acquires it again without a position.
            owner_that_has_the_lock_does_not_queue
            /// A client that shuts down takes its waiters out of the queue.
            shutdown_tells_the_waiters
            /// A release that has begun completes, though its future is dropped, and the lock goes to the
            /// first of the queue.
            dropped_unlock_passes_on
            /// An `acquire` whose future is dropped is rolled back: wherever the drop happens, the next
            /// client in the queue gets the lock.
            waiter_dropped_at_any_poll_keeps_no_other_client_waiting
        }
    };
}

/// The read-write locks of the page of `Backend`, by single commands.
#[macro_export]
#[doc(hidden)]
macro_rules! __read_write_commands {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            read_write_commands
            /// A free name has no holder, and releases, renewals and forced releases find nothing.
            free_lock_is_nobodys
            /// A writer's command that runs twice has the effect of one, and only a release shortens the
            /// writer's lease.
            writers_commands_that_run_twice_mean_the_same
            /// A reader's command that runs twice has the effect of one, and only a release shortens the
            /// reader's lease.
            readers_commands_that_run_twice_mean_the_same
            /// An id may read beside any other readers while no id writes; and write while no other id reads
            /// or writes.
            readers_share_the_lock_and_keep_writers_out
            /// Each lease belongs to one id, and lasts as long as the id asked for, whichever others come and
            /// go.
            each_lease_ends_by_itself
            /// An id may read if the lease that it reads under writes.
            writer_reads_beside_itself
            /// A writer that also reads keeps reading after its write lease is released: waiting readers are
            /// let in then, writers are not.
            reads_go_on_when_their_writer_leaves
            /// A writer that also reads keeps reading after its write lease expires: waiting readers are let
            /// in then, writers are not.
            reads_go_on_when_the_lease_of_their_writer_ends
            /// A reader's fencing token is greater than every earlier writer's, and equal for all readers
            /// until the next writer reserves a token.
            token_rises_with_each_change_between_reading_and_writing
            /// An id may read if no reachable writer began to wait before it.
            reader_waits_behind_writers_that_came_before_it
            /// A position lasts for as long as its last attempt says, and a granted lease ends with the
            /// position.
            position_of_a_writer_ends_by_itself
            /// When a writer leaves, a `ReadUnlock` is published, and the waiting readers are let in before
            /// the next writer.
            readers_that_wait_are_let_in_when_a_writer_leaves
            /// For one second no writer gets the lock, unless all readers that were let in have come.
            turn_of_readers_lasts_until_all_that_were_let_in_have_come
            /// When the last of the readers that were let in gives up, the lock is granted to the first
            /// writer of the queue.
            turn_of_readers_ends_with_the_last_that_gives_up
            /// When the second is over and a client asks, the lock is granted to the first writer of the
            /// queue.
            turn_of_readers_ends_after_a_second
            /// Writers queue by how long each has waited; the first is granted the lock, and notified on its
            /// client's own channel.
            writers_are_granted_the_lock_in_order
            /// An attempt without a position enters no queue, and a release takes an id out of the queue.
            writer_without_a_position_does_not_wait
            /// A release that names a next waiter puts the waiter into the queue before the store grants the
            /// lock.
            releasing_clients_next_writer_gets_the_lock_or_a_position
            /// An id whose client is known to have unsubscribed keeps its position and is passed over.
            writer_that_listens_no_more_is_passed_over
            /// A lock without a grantable waiter is free, and a `Message::Unlock` says so, or a `ReadUnlock`
            /// if readers may wait.
            lock_granted_to_no_waiter_is_free_and_announced_by_a_message
            /// A `ReadUnlock` is published when the last writer that readers wait behind leaves the queue.
            writer_that_leaves_the_queue_tells_readers
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_are_not_mixed
            /// `force_release` frees the lock from the writer and all readers, and the waiters get it.
            forced_release_goes_to_the_waiters
        }
    };
}

/// Promises of both sides of a read-write lock.
#[macro_export]
#[doc(hidden)]
macro_rules! __read_write {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            read_write
            /// Any number of owners, of any clients, read at a time, and no owner writes beside them.
            many_read_at_once
            /// Attempts to read that arrive together all succeed.
            readers_that_try_at_once_all_get_in
            /// An owner that reads may not wait to write: the owner would wait for itself.
            owner_that_waits_to_write_is_told_that_it_reads
            /// While one owner writes, no other reads or writes.
            writer_keeps_all_others_out
            /// `holders` lists the leases of the requested side.
            each_side_says_its_holders
            /// Of several readers, `Lock::holder` returns the reader whose lease lasts longest.
            holder_of_many_that_read_has_the_longest_lease
            /// One release of a writer lets all waiting readers of all clients in at once.
            readers_of_several_clients_are_woken_by_one_release
            /// Readers of one client share one lease, which the last reader releases.
            readers_of_one_client_share_one_hold
            /// A writer waits for the present readers and one turn of readers, however many readers of
            /// another client come later.
            stream_of_readers_starves_no_writer_of_another_client
            /// A writer waits for the present readers and one turn of readers, however many readers of its
            /// own client come later.
            stream_of_readers_starves_no_writer_of_its_own_client
            /// A reader that comes while a writer waits, waits behind the writer.
            newcomer_waits_behind_a_writer_that_waits
            /// A reader waits for one writer at most: the reader is let in before the next writer.
            reader_waits_for_one_writer
            /// A turn of readers ends as soon as the last of them gives up, not only after a second.
            readers_that_give_up_delay_no_writer
            /// An id that reads acquires the read lock again at once, although a writer waits.
            owner_that_reads_reads_again_though_a_writer_waits
            /// Owners that share a lease release only their own holds.
            owners_that_share_a_hold_end_only_their_own
            /// A hold whose guard was forgotten is released by its owner.
            hold_of_an_owner_is_given_back_by_name
            /// A writer that also reads lets other readers in when it releases the write lock, and keeps
            /// reading.
            writer_that_reads_lets_others_read_when_it_writes_no_more
            /// A writer that also reads may release the read lock first, and keeps writing.
            writer_may_give_its_reads_back_first
            /// A reader whose own writer gets the lock first reads at once.
            owner_whose_write_lock_comes_first_reads_at_once
            /// An owner that reads is refused to write, before a command is sent.
            owner_that_reads_is_refused_to_write
            /// `force_release` of either side frees both.
            force_unlock_ends_both_sides
            /// A renewal is answered lease by lease: each reader and writer learns the loss of its own lease.
            loss_is_told_to_all_readers
            /// A reader's token is greater than every earlier writer's, and no reader's token fences another
            /// reader off.
            tokens_of_readers_fence_writers_off_and_no_reader
            /// A reader's lease lasts as long as the reader asked for, and neither ends nor extends another
            /// reader's.
            lease_of_a_readers_own_is_its_own
            /// A longer lease beside shorter ones lasts for its own time.
            long_lease_of_a_reader_outlasts_the_others
            /// A renewal of either side extends its lease by the full time from then on.
            watchdog_keeps_what_is_read_and_written
            /// A read hold that lasts longer than `max_hold` is released alone.
            reader_is_lost_alone_when_it_has_read_for_too_long
            /// A reader that was let in and does not come delays writers by one turn at most, and other
            /// readers not at all.
            unpolled_reader_keeps_no_waiter_back
            /// An attempt to read whose future is dropped is rolled back, wherever the drop happens.
            readers_dropped_at_any_poll_leave_nothing
            /// A dropped attempt to read keeps no waiter behind it waiting.
            reader_dropped_at_any_poll_keeps_no_waiter_back
            /// A downgrade whose future is dropped leaves no lease, wherever the drop happens.
            downgrade_dropped_at_any_poll_leaves_nothing
            /// A client that shuts down waits for the releases of both sides.
            shutdown_waits_for_readers_and_writers
            /// A client that shuts down takes its waiting readers and writers out of the store.
            shutdown_tells_waiting_readers_and_writers
            /// Each acquisition of either side is counted once.
            acquisitions_are_counted
            /// Threads read and write as tasks do: any executor may begin and finish a command.
            threads_read_and_write
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_refuse_each_other
            /// No writer is ever inside beside a reader or another writer, and each of many tasks of two
            /// clients gets its turns.
            readers_and_writers_take_turns
        }
    };
}

/// The semaphores of the page of `Backend`, and the promises of every semaphore.
#[macro_export]
#[doc(hidden)]
macro_rules! __permits {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            permits
            /// A request is granted if the permits in use, with the requested ones, are at most the capacity;
            /// a refused request, also of several permits, gets none.
            permits_are_granted_up_to_the_capacity
            /// A command that runs twice has the effect of one, and only a release shortens a lease.
            commands_on_permits_that_run_twice_mean_the_same
            /// Each request brings its own capacity, and the store keeps none.
            each_request_brings_its_own_capacity
            /// As soon as permits are free, the first ids of the queue get theirs, in order; if the first id
            /// does not fit, no later id and no newcomer is granted.
            permits_go_to_the_first_of_the_queue_that_fits
            /// A release grants as many ids of the queue as fit, with one message each.
            one_release_serves_as_many_as_fit
            /// A release takes an id out of the queue, and the next ids get what is free.
            waiter_for_permits_leaves_the_queue
            /// An id whose client is known to have unsubscribed is passed over.
            waiter_for_permits_that_listens_no_more_is_passed_over
            /// Each lease expires by itself, and not before its time; waiters are told the earliest end, and
            /// an attempt after that end serves all waiters that fit.
            each_lease_of_permits_ends_by_itself
            /// `force_release` ends all leases, and the waiters are granted the permits.
            forced_release_of_permits_serves_the_waiters
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            semaphores_and_locks_refuse_each_other
            /// The tasks of two clients together never have more permits than the capacity, and each gets its
            /// turn.
            tasks_of_two_clients_never_exceed_the_capacity
            /// A released permit goes to a waiter by a message: no waiter sleeps until a timer.
            waiter_for_permits_is_woken_by_a_release
            /// The watchdog renews each lease, and a guard reports the loss.
            lost_permits_are_noticed
        }
    };
}
