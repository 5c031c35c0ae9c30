//! The properties by name, each with what the contract says. Every list is a macro that hands its entries to
//! another one: to the table of [`properties`](crate::properties), and to the tests of
//! [`suite!`](crate::suite).

/// What a lock of every mode that one id has at a time promises.
#[macro_export]
#[doc(hidden)]
macro_rules! __lock {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// A name is free, or leased to one id until that is released or the lease is over: an attempt of
            /// another id is answered by how long that lease lasts, and changes nothing.
            name_is_leased_to_one_id
            /// A release, or a rollback, by an id that does not have the lock is answered by `NotHeld`, and
            /// changes nothing.
            release_by_another_id_finds_nothing
            /// A renewal has one answer for each lease, in order: whether it still has its lock. It leases a
            /// name to no id that does not have it.
            renewal_answers_for_each_lease_in_order
            /// No command makes a lease shorter but a release: the id that has the lock acquires and renews
            /// it for as long at least as it lasts already.
            no_command_but_a_release_shortens_a_lease
            /// A lease ends by itself, and not before its time. Then the name is free for others, and a
            /// renewal or a release of that lease finds nothing.
            lease_that_is_over_is_free_for_others
            /// A fencing token rises from one reservation of a name to the next, whichever id makes it;
            /// `acquire` reserves as many consecutive ones as it is asked for.
            tokens_are_reserved_in_blocks_that_rise
            /// `force_release` frees the lock, whichever id has it, and returns whether it was held.
            forced_release_frees_whichever_id_has_the_name
        }
        $crate::$to! { $with
            lock
            /// While one client's owner has the lock, no other owner gets it, in that client or in another
            /// one, and each client is told that it is locked and for how long.
            another_owner_is_kept_out
            /// A release is told to the clients that wait, by a message on the channel of the name: no waiter
            /// sleeps until a timer.
            waiter_is_woken_by_release
            /// A guard that is dropped releases its lock, and that is told like any release.
            dropped_guard_wakes_a_waiter
            /// A forced release is told to the clients that wait.
            force_unlock_wakes_a_waiter
            /// An owner that has the lock acquires it again at once; the name is free when each of its holds
            /// is released.
            same_owner_may_enter_again
            /// No command makes a lease shorter but a release: a hold inside of another one does not.
            inner_hold_does_not_shorten_the_lease
            /// A lease that was lost stays lost: the same owner's next acquisition is a new one, which the
            /// guards from before do not touch.
            holds_that_are_lost_are_all_lost
            /// Commands of one id may be under way side by side: holds of one owner are counted right
            /// whichever of its tasks acquire, release, or are dropped.
            tasks_of_one_owner_count_right
            /// Tasks of one owner that wait all get in when the owner has the lock.
            task_gets_in_when_its_owner_does
            /// An acquisition with a limit asks the store, whatever the client believes of the lock.
            short_wait_asks_the_store
            /// A command whose future is not polled any more keeps no other command of the same id waiting.
            unpolled_future_keeps_no_task_of_its_owner_waiting
            /// An id is one client's: owners of another client neither release its lock nor have it.
            owner_of_another_client_is_refused
            /// A fencing token rises from one acquisition of a name to the next, whichever client makes it,
            /// and however the one before ended.
            tokens_rise_from_one_acquisition_to_the_next
            /// A release by an owner that does not have the lock fails, and changes nothing.
            unlock_without_hold_is_an_error
            /// A release is of one id: a guard whose lease was lost frees no lease that came after it.
            guard_of_a_lost_hold_frees_no_other_hold
            /// A lease that is not renewed is over after its time, and not before, and a waiter gets the lock
            /// then.
            lease_ends_by_itself
            /// A renewal makes the lease last for its time from then on: a lock that is renewed is not lost.
            watchdog_keeps_the_lease
            /// A renewal of a lease that is not there any more is answered so, and the guard reports the
            /// loss.
            watchdog_notices_the_loss
            /// An extension of a lease that is not there any more is answered so.
            asking_tells_the_loss
            /// A lock that is held for longer than `max_hold` is released, and given to the next waiter.
            lock_is_not_held_for_longer_than_allowed
            /// A wait ends with its limit, and leaves neither a lease, nor a position, nor a subscription.
            wait_ends_in_time_and_leaves_nothing
            /// A release that was begun is done, though its future is dropped.
            dropped_unlock_still_unlocks
            /// An `acquire` whose future is dropped is rolled back: wherever that happens, no lease, no
            /// position and no subscription is left, and the next waiter gets the lock.
            future_dropped_at_any_poll_leaves_nothing
            /// The same for a waiter to which its own client passes the lock on.
            successor_dropped_at_any_poll_leaves_nothing
            /// Waiters of one client are served first in, first out.
            waiters_are_served_in_the_order_in_which_they_came
            /// Mutual exclusion: tasks of two clients that take the lock in turns never meet, and each gets
            /// its turn.
            tasks_take_turns
        }
    };
}

/// What a plain lock promises beyond that.
#[macro_export]
#[doc(hidden)]
macro_rules! __plain {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// When a plain lock becomes free by `release` or by `force_release`, a message is published on
            /// its common channel, or its own if there is no common one, after it is free.
            release_is_published_to_subscribers
            /// A store that calls waiters calls the client that has waited longest, and the next one once
            /// that client has left.
            release_calls_the_client_that_has_waited_longest
        }
        $crate::$to! { $with
            lock
            /// A command that runs twice comes to the same: leases last for longer at most, tokens leave a
            /// gap, and the second release finds nothing.
            commands_that_run_twice_mean_the_same
            /// No command makes a lease shorter, so a short lease that follows a long one of the same client
            /// is a new one, and ends in time for the waiters of other clients.
            short_lease_after_a_long_one_ends_in_time_for_other_clients
            /// Names and leases that no store keeps are refused before a command is sent.
            bad_names_and_leases_are_refused
            /// The lock and its channel go by the mapped name.
            names_are_mapped
            /// Waiters of one client pass the lock on in memory, under one lease and with rising tokens.
            waiters_hand_the_lock_off_in_memory
            /// With a tenure of zero every waiter acquires the lock from the store.
            tenure_bounds_the_hand_offs
        }
    };
}

/// What a fair lock promises beyond that.
#[macro_export]
#[doc(hidden)]
macro_rules! __fair {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            leases
            /// An id has a position in the queue from the attempt on that asked for one; another attempt
            /// leaves nothing in the queue.
            attempt_without_a_position_does_not_queue
            /// A release leases the lock to the id in the queue that has waited longest, and its client is
            /// told by a message on its own channel. A position that is asked for again stays where it is.
            queue_is_ordered_by_how_long_each_has_waited
        }
        $crate::$to! { $with
            fair
            /// The store has a queue of ids for each name, ordered by how long each has waited; as soon as
            /// the lock is free, it is leased to the first of them.
            waiters_of_several_clients_are_served_in_the_order_in_which_they_came
            /// An attempt gets the lock if it is free and no id in the queue comes before this one.
            newcomer_does_not_overtake
            /// A waiter that gives up is released, and so out of the queue: it costs the others nothing.
            waiter_that_leaves_costs_the_others_nothing
            /// A waiter that gives up when the lock was leased to it is released, and the lock goes to the
            /// next of the queue.
            waiter_that_leaves_when_it_is_granted_the_lock_passes_it_on
            /// A grant lasts for what is left of the waiter's position: a client that died costs the others
            /// that time at most.
            unpolled_future_costs_the_others_the_life_of_its_position
            /// A lease that was granted is renewed like one that was asked for.
            hold_that_was_granted_unasked_lasts
            /// A lease of the waiter's own begins when the lock is granted to it, and ends after its time.
            lease_of_its_own_begins_with_the_release
            /// Tokens rise from one acquisition to the next, whether the lock is asked for, granted by a
            /// message or passed on by a release.
            tokens_rise_however_the_lock_is_granted
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_refuse_each_other
            /// A lock that is freed by force goes to the first of the queue.
            forced_unlock_passes_on
            /// The id that has the lock acquires it again without a position.
            owner_that_has_the_lock_does_not_queue
            /// A client that shuts down takes its waiters out of the queue.
            shutdown_tells_the_waiters
            /// A release that was begun is done, though its future is dropped, and the lock goes to the first
            /// of the queue.
            dropped_unlock_passes_on
            /// An `acquire` whose future is dropped is rolled back: wherever that happens, the next client in
            /// the queue gets the lock.
            waiter_dropped_at_any_poll_keeps_no_other_client_waiting
        }
    };
}

/// What the page of `Backend` says of read-write locks, by single commands.
#[macro_export]
#[doc(hidden)]
macro_rules! __read_write_commands {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            read_write_commands
            /// Of a free name there is no holder, and releases, renewals and forced releases find nothing.
            free_lock_is_nobodys
            /// A writer's command that runs twice comes to the same, and none but a release shortens its
            /// lease.
            writers_commands_that_run_twice_mean_the_same
            /// A reader's command that runs twice comes to the same, and none but a release shortens its
            /// lease.
            readers_commands_that_run_twice_mean_the_same
            /// An id may read if there is no writer, beside any others that read; and write if there is
            /// neither.
            readers_share_the_lock_and_keep_writers_out
            /// Each lease is one id's, and lasts as long as was asked for it, whichever others come and go.
            each_lease_ends_by_itself
            /// An id may read if the lease that it reads under writes.
            writer_reads_beside_itself
            /// A writer that is released goes on reading if it reads: readers that wait are let in then,
            /// writers are not.
            reads_go_on_when_their_writer_leaves
            /// The same when the writer's lease is over.
            reads_go_on_when_the_lease_of_their_writer_ends
            /// A reader's fencing token is greater than each that was reserved to write before, and the same
            /// for all readers until the next is reserved to write.
            token_rises_with_each_change_between_reading_and_writing
            /// An id may read if no writer that can be told began to wait before it.
            reader_waits_behind_writers_that_came_before_it
            /// A position lasts for as long as its last attempt says, and a lease that is granted unasked
            /// ends with it.
            position_of_a_writer_ends_by_itself
            /// When a writer leaves, a `ReadUnlock` is published, and the readers that wait are let in before
            /// the next writer.
            readers_that_wait_are_let_in_when_a_writer_leaves
            /// For a second no writer gets the lock, until all readers that were let in have come.
            turn_of_readers_lasts_until_all_that_were_let_in_have_come
            /// When the last of the readers that were let in gives up, the first writer of the queue is
            /// granted the lock.
            turn_of_readers_ends_with_the_last_that_gives_up
            /// When the second is over and a client asks, the first writer of the queue is granted the lock.
            turn_of_readers_ends_after_a_second
            /// Writers queue by how long each has waited; the first is granted the lock, and its client is
            /// told on its own channel.
            writers_are_granted_the_lock_in_order
            /// An attempt without a position gets none, and a release takes an id out of the queue.
            writer_without_a_position_does_not_wait
            /// A release that names a next waiter puts it into the queue before it grants.
            next_writer_of_the_releasing_client_gets_the_lock_or_a_position
            /// An id whose client is known to listen no more keeps its position and is passed over.
            writer_that_listens_no_more_is_passed_over
            /// What can be granted to no waiter is free, and a `Message::Unlock` says so, or a `ReadUnlock`
            /// if readers may wait.
            lock_that_is_granted_to_no_waiter_is_free_and_a_message_says_so
            /// A `ReadUnlock` is published when the last writer that readers wait behind leaves the queue.
            writer_that_leaves_the_queue_tells_readers
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_are_not_mixed
            /// `force_release` frees the lock from the writer and all readers, and it goes to those that
            /// wait.
            forced_release_goes_to_the_waiters
        }
    };
}

/// What both sides of a read-write lock promise.
#[macro_export]
#[doc(hidden)]
macro_rules! __read_write {
    ($to:ident $with:tt) => {
        $crate::$to! { $with
            read_write
            /// Any number of owners, of any clients, read at a time, and no owner writes beside them.
            many_read_at_once
            /// Attempts to read that come at once all get in.
            readers_that_try_at_once_all_get_in
            /// An owner that reads may not wait to write: it would wait for itself.
            owner_that_waits_to_write_is_told_that_it_reads
            /// While one owner writes, no other reads or writes.
            writer_keeps_all_others_out
            /// `holders` tells the leases of the side that is asked for.
            each_side_says_its_holders
            /// Of several readers, `Lock::holder` says the one whose lease lasts longest.
            holder_of_many_that_read_has_the_longest_lease
            /// One release of a writer lets all readers in that wait, of all clients, at once.
            readers_of_several_clients_are_woken_by_one_release
            /// Readers of one client share one lease, which the last of them releases.
            readers_of_one_client_share_one_hold
            /// A writer waits for those that read and one turn of readers, however many of another client
            /// come after it.
            stream_of_readers_starves_no_writer_of_another_client
            /// The same for readers of its own client.
            stream_of_readers_starves_no_writer_of_its_own_client
            /// A reader that comes when a writer waits, waits behind it.
            newcomer_waits_behind_a_writer_that_waits
            /// A reader waits for one writer: it is let in before the next one.
            reader_waits_for_one_writer
            /// A turn of readers is over when the last of them gives up, and not only after a second.
            readers_that_give_up_delay_no_writer
            /// An id that reads acquires it again at once, although a writer waits.
            owner_that_reads_reads_again_though_a_writer_waits
            /// Owners that share a lease release their own holds alone.
            owners_that_share_a_hold_end_only_their_own
            /// A hold whose guard was forgotten is released by its owner.
            hold_of_an_owner_is_given_back_by_name
            /// A writer that reads lets other readers in when it is released to write, and reads on itself.
            writer_that_reads_lets_others_read_when_it_writes_no_more
            /// A writer that reads may be released to read first, and writes on.
            writer_may_give_its_reads_back_first
            /// A reader whose own writer gets the lock first reads at once.
            owner_whose_write_lock_comes_first_reads_at_once
            /// An owner that reads is refused to write, before a command is sent.
            owner_that_reads_is_refused_to_write
            /// `force_release` of either side frees both.
            force_unlock_ends_both_sides
            /// A renewal is answered lease by lease: each reader and writer whose lease is gone learns so.
            loss_is_told_to_all_readers
            /// A reader's token is greater than each writer's before it, and no reader's refuses another
            /// one's.
            tokens_of_readers_fence_writers_off_and_no_reader
            /// A reader's lease lasts as long as was asked for it, and neither ends nor extends another
            /// one's.
            lease_of_a_readers_own_is_its_own
            /// A longer lease beside shorter ones lasts for its own time.
            long_lease_of_a_reader_outlasts_the_others
            /// A renewal of either side makes its lease last for its time from then on.
            watchdog_keeps_what_is_read_and_written
            /// A reader that is held for longer than `max_hold` is released alone.
            reader_is_lost_alone_when_it_has_read_for_too_long
            /// A reader that was let in and does not come delays writers for a turn at most, and other
            /// readers not at all.
            unpolled_reader_keeps_no_waiter_back
            /// An attempt to read whose future is dropped is rolled back, wherever that happens.
            readers_dropped_at_any_poll_leave_nothing
            /// The same, for those that wait behind it.
            reader_dropped_at_any_poll_keeps_no_waiter_back
            /// Going on to read under one's own write lock, dropped wherever it may be, leaves no lease.
            downgrade_dropped_at_any_poll_leaves_nothing
            /// A client that shuts down waits for the releases of both sides.
            shutdown_waits_for_readers_and_writers
            /// A client that shuts down takes its readers and writers that wait out of the store.
            shutdown_tells_waiting_readers_and_writers
            /// Acquisitions of either side are counted once each.
            acquisitions_are_counted
            /// Threads read and write as tasks do: commands are begun and finished on whichever executor
            /// polls them.
            threads_read_and_write
            /// A name is held as one kind of lock at a time: a command for another kind fails with
            /// `Failure::OtherKind`, and changes nothing.
            kinds_refuse_each_other
            /// No writer is ever beside any other that reads or writes, and each of many tasks of two clients
            /// gets its turns.
            readers_and_writers_take_turns
        }
    };
}
