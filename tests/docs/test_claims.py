"""Every claim of the pages on who learns what, and who can do what, beside the test that plays that party.

A claim is a piece of a page, as it stands there. Whoever changes the sentence, or renames the test, finds out here.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

PRIVACY, DEPLOY, ROBUSTNESS, README = "docs/privacy.md", "docs/deploy.md", "docs/robustness.md", "README.md"
ACCEPTS, ACTIVE, ALLOWED = "deploy/test_accepts.py", "deploy/test_active_server.py", "deploy/test_allowed.py"
DEPLOYMENT, GUARD, INVITATION = "deploy/test_deployment.py", "deploy/test_guard.py", "deploy/test_invitation.py"
LIMITS, OUTSIDER, REPLIES = "deploy/test_limits.py", "deploy/test_outsider.py", "deploy/test_replies.py"
LEARNS, WIRE, TABLES = "deploy/test_who_learns_what.py", "deploy/test_wire.py", "deploy/test_tables_on_nodes.py"
LEFT_BEHIND, CLI = "deploy/test_left_behind.py", "cli/test_deploy.py"
SECAGG, RUNS, ACCOUNTANT = "privacy/test_secagg.py", "privacy/test_private_runs.py", "privacy/test_accountant.py"
DOOR, PATIENCE, REGISTERED = "flower/test_door.py", "flower/test_patience.py", "flower/test_registered_node.py"
IMPOSTOR, TEMPORARY, PROCESSES = "flower/test_impostor.py", "flower/test_temporary.py", "flower/test_processes.py"
SIMULATION, LABELLING = "engine/flower/test_simulation.py", "labelling/test_labelling.py"
SCREEN, ROBUST, OUT = "engine/test_screen.py", "aggregation/test_robust.py", "aggregation/test_left_out.py"
RECORD, PRIORS, FAULTS = "record/test_run_directory.py", "priors/test_training.py", "faults/test_faults.py"

Claims = list[tuple[str, list[str]]]
"""pieces of a page, and the tests behind each"""

OF_PRIVACY: Claims = [
    (
        "only model parameters and counts leave a client, and one sum of negative classes that `method.lent` needs",
        [f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else"],
    ),
    (
        "a sum tells it the sum of all updates and no single one",
        [f"{SECAGG}::test_the_server_never_holds_an_unmasked_update", f"{SECAGG}::test_masked_vectors_look_like_noise"],
    ),
    (
        "whoever sees the models, other clients included; the server is trusted",
        [
            f"{RUNS}::test_central_noise_on_the_sum_has_the_standard_deviation_asked_for",
            f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not",
        ],
    ),
    (
        "everybody, the server included",
        [f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not"],
    ),
    (
        "With any of them on, the terms of the risk stay with the clients",
        [f"{LEARNS}::test_terms_of_the_risk_leave_only_if_they_are_asked_for_and_never_with_privacy"],
    ),
    (
        "networks with buffers, such as BatchNorm's running statistics, are refused",
        [f"{RUNS}::test_statistics_of_batch_norm_are_refused_and_frozen_parameters_left_alone"],
    ),
    # The table of settings, cell by cell.
    (
        "| nothing | nothing | every update, n_k, which classes a client does not label |",
        [
            f"{OUTSIDER}::test_an_outsider_with_the_certificate_gets_nothing_by_flowers_commands",
            f"{OUTSIDER}::test_only_the_routes_of_nodes_answer_at_their_port",
            f"{LEARNS}::test_without_protection_the_server_learns_sizes_class_sets_and_every_update",
        ],
    ),
    (
        "| the same, for a model of its choice | what models tell |",
        [
            f"{LIMITS}::test_with_a_model_of_its_choice_a_server_reads_images_out_of_a_sum_and_not_through_local_noise",
            f"{LEARNS}::test_all_that_a_client_is_sent_is_models_work_and_the_one_sum",
            f"{REGISTERED}::"
            "test_a_guess_of_anothers_classes_is_confirmed_by_a_bare_part_and_not_by_those_that_nodes_send",
        ],
    ),
    (
        "sums over at least `threshold` of a round's clients, and Σ n_k; no single update or class set;",
        [
            f"{SECAGG}::test_below_the_threshold_the_round_fails_with_a_sentence",
            f"{LEARNS}::test_under_secure_aggregation_it_learns_no_class_set_and_no_update",
        ],
    ),
    (
        "n_k by subtraction, where rounds have different clients",
        [f"{LIMITS}::test_sizes_can_be_told_from_sums_over_different_clients_and_not_from_sums_over_all"],
    ),
    (
        "clients, for models of its choice, and what their differences tell",
        [
            f"{ACTIVE}::test_a_client_hides_among_as_many_as_its_owner_asks_for",
            f"{LIMITS}::"
            "test_two_rounds_of_one_model_that_differ_by_one_client_tell_its_update_unless_every_group_is_all_clients",
        ],
    ),
    (
        "with the server: a client's update once they are a quorum of its group",
        [f"{LEARNS}::test_the_server_and_a_quorum_of_its_group_read_a_clients_vector_and_fewer_do_not"],
    ),
    (
        "| `central` | nothing | every clipped update, which classes a client does not label |",
        [
            f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not",
            f"{LEARNS}::test_under_central_noise_the_server_learns_class_sets_and_under_local_noise_it_does_not",
        ],
    ),
    (
        "the noise is its to leave out",
        [f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not"],
    ),
    (
        "models with noise: (ε, δ)",
        [
            f"{RUNS}::test_central_noise_on_the_sum_has_the_standard_deviation_asked_for",
            f"{RUNS}::test_the_sum_of_negative_classes_is_as_noisy_as_asked_for",
            f"{REGISTERED}::test_nobody_can_guess_who_was_drawn_by_the_work_that_is_asked_for",
        ],
    ),
    (
        "the exact sum of clipped updates, no single one",
        [
            f"{LEARNS}::test_under_secure_aggregation_it_learns_no_class_set_and_no_update",
            f"{RUNS}::test_updates_are_clipped_before_they_are_summed",
        ],
    ),
    (
        "noisy updates: (ε, δ) of each client",
        [
            f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not",
            f"{ACCOUNTANT}::test_local_epsilon_is_that_of_the_client_that_took_part_most",
        ],
    ),
    (
        "the same (ε, δ) under one invitation, whatever it sends or asks; the node counts",
        [
            f"{LIMITS}::test_a_round_is_answered_once_under_one_invitation",
            f"{ACCEPTS}::test_epsilon_is_counted_as_the_accountant_counts_it_and_ends_what_a_node_gives_out",
        ],
    ),
    (
        "the sum of noisy updates",
        [
            f"{LEARNS}::test_under_secure_aggregation_it_learns_no_class_set_and_no_update",
            f"{RUNS}::test_local_noise_is_everybodys_own",
        ],
    ),
    # What stands behind a cell.
    (
        "an outsider registers, runs, lists, pulls and stops nothing; a node without TLS or a registered key is",
        [
            f"{OUTSIDER}::test_an_outsider_with_the_certificate_gets_nothing_by_flowers_commands",
            f"{DEPLOYMENT}::test_a_stranger_is_refused_and_so_is_a_client_without_tls",
        ],
    ),
    (
        "a client sends its counts, its part of the one sum and its updates, and nothing else",
        [f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else"],
    ),
    (
        "the server holds no unmasked update of a secure sum at any stage; masked vectors look like noise",
        [f"{SECAGG}::test_the_server_never_holds_an_unmasked_update", f"{SECAGG}::test_masked_vectors_look_like_noise"],
    ),
    (
        "a curious server finds every update and class set without protection, and none in what it receives under "
        "masks; n_k is not told with `[privacy]` on",
        [
            f"{LEARNS}::test_without_protection_the_server_learns_sizes_class_sets_and_every_update",
            f"{LEARNS}::test_under_secure_aggregation_it_learns_no_class_set_and_no_update",
        ],
    ),
    (
        "the server takes noise of the seed off again, and can't take off the system's",
        [f"{LEARNS}::test_the_server_takes_noise_of_the_seed_off_again_and_not_the_systems"],
    ),
    (
        "an active server gets no message answered that departs from the run that was joined, none beyond the budget, "
        "and none twice",
        [
            f"{ACCEPTS}::test_a_message_that_departs_from_the_configuration_is_refused",
            f"{ACCEPTS}::test_rounds_are_counted_across_restarts_and_runs",
            f"{ACCEPTS}::test_a_request_is_answered_once_also_by_a_node_that_was_started_again",
        ],
    ),
    (
        "without signatures a server that substitutes keys reads a single vector; with them it gets nothing",
        [
            f"{ACTIVE}::test_without_signatures_a_server_that_substitutes_keys_reads_a_single_vector",
            f"{ACTIVE}::test_substituted_keys_are_refused_whoever_signs_them",
        ],
    ),
    (
        "a server that sends one client another model gets no sum; one that asks for a small group gets no answer",
        [
            f"{ACTIVE}::test_a_server_that_sends_one_client_another_model_gets_no_sum",
            f"{ACTIVE}::test_a_client_hides_among_as_many_as_its_owner_asks_for",
        ],
    ),
    (
        "a server gets no answer twice for a round under one invitation",
        [f"{LIMITS}::test_a_round_is_answered_once_under_one_invitation"],
    ),
    (
        "the server with a quorum of a client's group reads its vector, and with fewer it can't",
        [f"{LEARNS}::test_the_server_and_a_quorum_of_its_group_read_a_clients_vector_and_fewer_do_not"],
    ),
    (
        "under `central` the server sees every clipped update, under `local` only noisy ones",
        [f"{LEARNS}::test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not"],
    ),
    (
        "all that a client is sent, and colluding clients could pool, is models, the work asked for and the one sum",
        [f"{LEARNS}::test_all_that_a_client_is_sent_is_models_work_and_the_one_sum"],
    ),
    (
        "a node answers no run that it was not invited to, and no request that was changed, repeated or meant for",
        [
            f"{OUTSIDER}::test_a_node_refuses_a_run_that_it_was_not_invited_to_even_of_somebody_with_the_secret",
            f"{INVITATION}::test_a_request_that_was_changed_is_refused",
            f"{INVITATION}::test_a_request_is_answered_once",
            f"{INVITATION}::test_a_request_is_for_one_node_one_kind_and_one_run",
        ],
    ),
    (
        "somebody without a registered key is refused at once, and can't make the server wait for messages",
        [f"{PATIENCE}::test_who_did_not_ask_for_it_or_is_refused_does_not_wait"],
    ),
    (
        "noise and clip are as large as stated, ε is that of independent accountants",
        [
            f"{RUNS}::test_updates_are_clipped_before_they_are_summed",
            f"{RUNS}::test_local_noise_is_everybodys_own",
            f"{ACCOUNTANT}::test_without_sampling_epsilon_is_the_exact_one_of_the_gaussian_mechanism",
        ],
    ),
    # What none of them withstands.
    (
        "a sum over a few clients can still tell of single examples. Only `local` has a bound that holds for any model",
        [f"{LIMITS}::test_with_a_model_of_its_choice_a_server_reads_images_out_of_a_sum_and_not_through_local_noise"],
    ),
    (
        "Two secure sums for one model, of which one lacks a client, tell that client's update.",
        [
            f"{LIMITS}::"
            "test_two_rounds_of_one_model_that_differ_by_one_client_tell_its_update_unless_every_group_is_all_clients",
        ],
    ),
    (
        "A server that only listens solves Σ n_k of rounds with different clients for each n_k",
        [f"{LIMITS}::test_sizes_can_be_told_from_sums_over_different_clients_and_not_from_sums_over_all"],
    ),
    (
        "Then `[accepts]` still holds, the ledger still counts, and `[peers]` keeps made-up clients out",
        [
            f"{ACCEPTS}::test_a_message_of_another_configuration_is_refused_even_if_the_owner_has_signed_it_too",
            f"{ACCEPTS}::test_rounds_are_counted_across_restarts_and_runs",
            f"{ACTIVE}::test_a_node_that_knows_its_peers_need_not_trust_the_owner_with_their_keys",
        ],
    ),
    (
        "A sum over a client and accomplices of the server is that client's update. `group` counts registered clients",
        [f"{LIMITS}::test_a_sum_over_a_client_and_accomplices_of_the_server_is_that_clients_update"],
    ),
    (
        "**Who takes part, when, and how long it computes** can be seen on the wire.",
        [f"{WIRE}::test_a_request_says_besides_who_sends_it_and_with_what_programs_and_a_reply_how_long_it_took"],
    ),
    (
        "With two examples, one of them labelled, they tell the other's class outright",
        [f"{LABELLING}::test_of_two_examples_known_shares_tell_the_hidden_class_and_others_do_not"],
    ),
    # Differential privacy.
    (
        "whatever the method and the aggregation return besides (SCAFFOLD's change of c_k), is scaled down to the norm",
        [f"{RUNS}::test_statistics_of_batch_norm_are_refused_and_frozen_parameters_left_alone"],
    ),
    (
        "the sum is divided by the number of clients *to be expected*, q·K, a constant, and not by the number",
        [f"{RUNS}::test_what_the_server_keeps_does_not_tell_how_many_clients_came"],
    ),
    (
        'Everybody counts as one, also with `method.lent = "shared"`: sizes are private',
        [f"{RUNS}::test_sizes_play_no_part_in_it_under_differential_privacy"],
    ),
    (
        "kept in the checkpoint so that resuming does not release it again",
        [f"{RUNS}::test_the_sum_of_negative_classes_is_released_once_even_if_a_run_is_resumed"],
    ),
    (
        "whoever knows the seed can take the noise off",
        [f"{LEARNS}::test_the_server_takes_noise_of_the_seed_off_again_and_not_the_systems"],
    ),
    (
        "A deployment on data of its clients' own refuses it",
        [f"{ACCEPTS}::test_a_deployment_refuses_noise_that_the_seed_takes_off_again"],
    ),
    (
        "a round counts in ε as often as it was asked for; a node",
        [
            f"{RUNS}::test_interrupted_rounds_of_local_noise_count_as_often_as_they_were_released",
            f"{ACCEPTS}::test_a_round_that_is_interrupted_and_asked_for_again_counts_twice",
        ],
    ),
    (
        "`partition.npz` holds everybody's rows",
        [f"{RECORD}::test_the_partition_is_saved_and_can_be_used_again"],
    ),
    # Secure aggregation.
    (
        "A client gives a share of somebody's seed or of their mask key, never both, and takes no step twice.",
        [f"{SECAGG}::test_a_client_gives_no_shares_that_would_lay_a_single_update_open"],
    ),
    (
        "A client whose update leaves the range refuses",
        [f"{SECAGG}::test_a_client_refuses_numbers_outside_the_rules"],
    ),
    (
        "nobody learns another's classes, and the sum is exact",
        [
            f"{LEARNS}::test_under_secure_aggregation_it_learns_no_class_set_and_no_update",
            f"{RUNS}::test_the_sum_of_negative_classes_is_exact_under_secure_aggregation",
        ],
    ),
    (
        "Whoever knows the sizes from elsewhere, and the clients are few, could tell from such a sum whose",
        [f"{LIMITS}::test_whoever_knows_the_sizes_tells_from_a_sum_by_size_who_lacks_which_classes"],
    ),
    (
        "A Poisson draw of a single client has no secure sum",
        [f"{GUARD}::test_a_draw_that_is_too_small_for_a_secure_sum_asks_nobody_and_adds_noise"],
    ),
    (
        "Against a curious server the sum is all that is learnt, with up to *t* − 1 colluding clients",
        [f"{LEARNS}::test_the_server_and_a_quorum_of_its_group_read_a_clients_vector_and_fewer_do_not"],
    ),
    (
        "Channels between a client and the server are authenticated and confidential",
        [
            f"{IMPOSTOR}::test_a_node_says_nothing_to_a_server_that_its_authority_has_not_signed",
            f"{DEPLOYMENT}::test_a_stranger_is_refused_and_so_is_a_client_without_tls",
        ],
    ),
    (
        "of two clients each learns the other's part",
        [f"{LIMITS}::test_of_two_clients_each_learns_the_others_classes_and_no_node_joins_two_by_default"],
    ),
    (
        "for one run and round, and a client refuses neighbours whose keys are not.",
        [
            f"{ACTIVE}::test_substituted_keys_are_refused_whoever_signs_them",
            f"{ACTIVE}::test_keys_of_another_sum_are_refused",
            f"{ACTIVE}::test_a_colluding_node_can_not_stand_for_several_others",
        ],
    ),
    (
        "A client hides among at least `group` clients of its own choice, at every stage",
        [f"{ACTIVE}::test_a_client_hides_among_as_many_as_its_owner_asks_for"],
    ),
    (
        "Length, range, bits, threshold and weights of a sum must follow from the configuration.",
        [f"{ACTIVE}::test_the_rules_of_a_sum_follow_from_the_configuration"],
    ),
    (
        "clients that were sent different models have masks that do not cancel",
        [f"{LEARNS}::test_masks_of_clients_that_were_told_different_things_do_not_cancel"],
    ),
    (
        "It can't ask different clients about different dropouts to get both secrets of one",
        [f"{LEARNS}::test_telling_clients_of_different_dropouts_needs_a_third_of_a_group_as_accomplices"],
    ),
    (
        "It could still choose its accomplices as a client's neighbours",
        [f"{LEARNS}::test_a_server_may_choose_accomplices_as_a_clients_neighbours"],
    ),
    (
        "nothing proves that an update is honest, or clipped",
        [f"{LIMITS}::test_under_masks_nothing_proves_that_an_update_was_clipped"],
    ),
    (
        "Shares that were changed are found out",
        [f"{SECAGG}::test_a_message_that_was_changed_is_refused"],
    ),
]

OF_DEPLOY: Claims = [
    (
        "The folder, which only you can enter",
        [f"{CLI}::test_the_secrets_of_a_deployment_are_its_owners_and_no_node_gets_them"],
    ),
    ("`register` binds a name to a key", [f"{CLI}::test_a_name_belongs_to_one_key"]),
    (
        "the client's own class priors; they never leave",
        [
            f"{LEARNS}::test_a_nodes_own_priors_change_its_update_and_nothing_else_that_it_sends",
            f"{PRIORS}::test_nothing_new_goes_to_the_server",
        ],
    ),
    (
        "A run started with `flwr run` has no invitation, and nodes refuse it.",
        [f"{OUTSIDER}::test_a_node_refuses_a_run_that_it_was_not_invited_to_even_of_somebody_with_the_secret"],
    ),
    (
        "words, medians, means and deviations of *its* rows travel to the nodes, nothing of theirs to it",
        [f"{TABLES}::test_files_of_tables_give_the_model_of_encoded_arrays"],
    ),
    (
        "so that no statistics need to travel, and nobody measures",
        [f"{LEARNS}::test_a_server_without_data_hears_of_shapes_and_classes_and_scales_by_constants"],
    ),
    # Who can take part.
    (
        "Each is a list of exact routes and refuses everything else",
        [
            f"{DOOR}::test_nodes_pass_with_what_they_need_and_nobody_with_anything_else",
            f"{DOOR}::test_a_path_must_be_written_as_it_is_meant",
            f"{OUTSIDER}::test_no_spelling_of_a_path_gets_through",
        ],
    ),
    (
        "| nodes' | the port of `--address`, on every network",
        [f"{OUTSIDER}::test_only_the_routes_of_nodes_answer_at_their_port"],
    ),
    (
        "| owner's | the loopback, another port at every start",
        [
            f"{OUTSIDER}::test_the_owners_door_is_on_the_loopback_alone_and_nodes_listen_nowhere",
            f"{DOOR}::test_control_needs_the_secret",
        ],
    ),
    (
        "the executor's signature with that secret, or the token of the task",
        [f"{OUTSIDER}::test_every_route_asks_other_users_of_the_machine_for_a_secret"],
    ),
    ("The secret is 32 random bytes", [f"{DOOR}::test_a_secret_that_others_can_read_is_refused"]),
    (
        "Both files are for their owner alone, like the databases and logs.",
        [
            f"{OUTSIDER}::test_what_the_server_writes_is_its_owners_alone",
            f"{LEFT_BEHIND}::test_a_trial_that_is_killed_leaves_no_process_and_no_key",
        ],
    ),
    (
        "| somebody with `ca.crt` | nothing: register, run, list, pull and stop are refused |",
        [f"{OUTSIDER}::test_an_outsider_with_the_certificate_gets_nothing_by_flowers_commands"],
    ),
    (
        "| a node without a key, with one that was not registered, or without TLS | refused |",
        [f"{DEPLOYMENT}::test_a_stranger_is_refused_and_so_is_a_client_without_tls"],
    ),
    (
        "| a registered node | its own messages |",
        [f"{OUTSIDER}::test_a_registered_node_reaches_its_own_messages_and_nothing_else"],
    ),
    (
        "| another user of the server | nothing: the loopback asks for the secret",
        [
            f"{OUTSIDER}::test_another_user_of_the_machine_gets_nothing_by_flowers_commands",
            f"{OUTSIDER}::test_a_node_refuses_a_run_that_it_was_not_invited_to_even_of_somebody_with_the_secret",
        ],
    ),
    (
        "Ray listens on the loopback alone and asks for a token",
        [
            f"{SIMULATION}::test_other_users_of_the_machine_are_asked_for_a_secret",
            f"{SIMULATION}::test_it_listens_on_the_loopback_alone_and_shows_no_token",
        ],
    ),
    (
        "| whoever can read `server/` or `flower/`: the server's user, and root | control |",
        [f"{OUTSIDER}::test_a_node_refuses_a_run_that_it_was_not_invited_to_even_of_somebody_with_the_secret"],
    ),
    (
        "**A node answers only runs that it was invited to.**",
        [
            f"{INVITATION}::test_every_kind_of_message_is_refused_without_an_invitation",
            f"{INVITATION}::test_an_invitation_ends_and_is_for_its_configuration_and_by_its_owner",
        ],
    ),
    (
        "requests without an invitation, for another run, node or configuration, changed on their way, or asked twice",
        [
            f"{INVITATION}::test_a_request_that_was_changed_is_refused",
            f"{INVITATION}::test_a_request_is_for_one_node_one_kind_and_one_run",
            f"{ACCEPTS}::test_a_request_is_answered_once_also_by_a_node_that_was_started_again",
        ],
    ),
    (
        "stands between the two can listen, and can ask for nothing",
        [
            f"{INVITATION}::test_a_request_that_was_changed_is_refused",
            f"{INVITATION}::test_the_key_of_one_run_signs_nothing_for_another",
        ],
    ),
    (
        "keep the key elsewhere and give it with `fedpu deploy start --key FILE`; the rounds do not need it",
        [
            f"{INVITATION}::test_a_run_without_an_invitation_of_the_owner_is_none",
            f"{DEPLOYMENT}::test_the_rounds_do_not_need_the_owners_key",
        ],
    ),
    (
        "a node says that it answers anybody, and that what it sends can be read and changed on its way",
        [f"{INVITATION}::test_and_says_so_before_it_connects"],
    ),
    (
        "every part that is about one client holds 16 random bytes",
        [
            f"{REGISTERED}::"
            "test_a_guess_of_anothers_classes_is_confirmed_by_a_bare_part_and_not_by_those_that_nodes_send",
            f"{REGISTERED}::test_nobody_can_guess_who_was_drawn_by_the_work_that_is_asked_for",
            f"{WIRE}::test_no_part_that_is_about_a_client_has_a_hash_that_others_could_guess",
        ],
    ),
    (
        "`confirm-message-received` deletes a message whose SHA-256 one knows.",
        [
            f"{REGISTERED}::test_whoever_knows_the_hash_of_a_message_can_delete_it",
            f"{REGISTERED}::test_a_part_is_written_only_where_it_was_announced_and_only_as_it_was",
        ],
    ),
    (
        "`push-messages` does not compare the sender of a message with the node that signs it.",
        [
            f"{REGISTERED}::"
            "test_a_message_in_the_servers_name_reaches_another_node_and_a_reply_needs_the_hash_of_its_question",
            f"{INVITATION}::test_a_request_that_was_changed_is_refused",
        ],
    ),
    (
        "A node that calls itself by another name is refused at joining",
        [
            f"{REPLIES}::test_a_node_that_calls_itself_by_anothers_name_is_refused_and_named",
            f"{DEPLOYMENT}::test_too_few_clients_end_the_run_with_a_sentence_that_names_who_was_refused_and_why",
        ],
    ),
    (
        "A key that was registered without a name, with Flower's own command, takes no part.",
        [f"{REPLIES}::test_a_key_without_a_name_takes_no_part_where_names_are_registered"],
    ),
    (
        "a second node of that name is refused for as long",
        [f"{REPLIES}::test_where_nobody_registers_names_a_second_node_of_one_name_is_refused_while_the_first_is_here"],
    ),
    # What a node's word counts for.
    (
        "| its name | nothing, unless its key was registered under it |",
        [f"{REPLIES}::test_a_node_that_calls_itself_by_anothers_name_is_refused_and_named"],
    ),
    (
        "| its number of examples n_k | pinned at joining",
        [
            f"{REPLIES}::test_a_number_of_examples_out_of_all_proportion_is_not_believed",
            f"{REPLIES}::test_a_hostile_reply_costs_its_sender_the_round",
        ],
    ),
    (
        "| its weight under differential privacy | nothing: it counts once, or is left out |",
        [f"{GUARD}::test_under_differential_privacy_a_client_counts_once_and_within_its_bound"],
    ),
    (
        "| its weight in the sum of negative classes | 1, or with",
        [f"{GUARD}::test_a_node_that_counts_itself_otherwise_than_it_has_told_is_left_out"],
    ),
    (
        "| its part of that sum | it must be v vᵀ of zeros and ones",
        [
            f"{GUARD}::test_a_bad_part_of_the_first_sum_costs_its_client_and_not_the_start",
            f"{GUARD}::test_whoever_alone_labels_a_class_is_missed_and_too_few_parts_are_no_sum",
            f"{LEARNS}::test_a_client_whose_part_of_the_sum_is_no_good_is_left_out_of_the_run_and_named",
        ],
    ),
    (
        "| its tensors | names, shapes and types must be those asked for",
        [
            f"{REPLIES}::test_a_hostile_reply_costs_its_sender_the_round",
            f"{SCREEN}::test_an_update_far_longer_than_the_median_is_cut_to_a_multiple_of_it",
        ],
    ),
    (
        "| terms of its risk | finite numbers under at most 32 plain names",
        [f"{REPLIES}::test_terms_that_were_asked_for_must_be_numbers_under_sane_names"],
    ),
    (
        "bytes of which no message can be made | the reply is not used |",
        [
            f"{REPLIES}::test_a_hostile_reply_costs_its_sender_the_round",
            f"{REPLIES}::test_parts_of_which_no_message_can_be_made_are_a_reply_that_did_not_come",
        ],
    ),
    (
        "keys, shares and lengths that are wrong leave it out. What the masks hide shows in the sum alone.",
        [
            f"{REPLIES}::test_a_client_that_cheats_in_a_secure_sum_is_left_out",
            f"{REPLIES}::test_a_client_that_counts_itself_more_than_once_under_masks_shows_in_the_sum",
        ],
    ),
    (
        "`fedpu deploy node` never runs code that the server sends",
        [
            f"{WIRE}::test_everything_else_is_small_and_goes_to_the_superlink_alone",
            f"{ALLOWED}::test_what_a_node_has_not_allowed_is_refused_before_it_is_imported",
        ],
    ),
    (
        "It refuses what its owner does not accept, and whatever departs from what it agreed to",
        [f"{ACCEPTS}::test_what_is_accepted_is_answered_and_the_server_hears_why_not"],
    ),
    # A node sets its own privacy.
    (
        '| `differential` | the weakest mode: `"off"`, `"central"` or `"local"` |',
        [f"{ACCEPTS}::test_a_run_that_is_not_accepted_is_refused_at_joining"],
    ),
    (
        "| `clip`, `noise_multiplier`, `lent_noise_multiplier` |",
        [f"{ACCEPTS}::test_a_run_that_is_not_accepted_is_refused_at_joining"],
    ),
    (
        "| `secure_aggregation` | only runs whose sums are secure? |",
        [f"{ACCEPTS}::test_a_run_that_is_not_accepted_is_refused_at_joining"],
    ),
    (
        "| `batch` | the least `aggregation.batch_size` | 8 |",
        [f"{ACCEPTS}::test_a_run_that_is_not_accepted_is_refused_at_joining"],
    ),
    (
        "| `group` | clients among which a secure sum hides the node, itself counted | 3 |",
        [
            f"{ACTIVE}::test_a_client_hides_among_as_many_as_its_owner_asks_for",
            f"{LIMITS}::test_of_two_clients_each_learns_the_others_classes_and_no_node_joins_two_by_default",
        ],
    ),
    (
        "| `rounds` | updates that the node gives out, in all runs together |",
        [f"{ACCEPTS}::test_rounds_are_counted_across_restarts_and_runs"],
    ),
    (
        "| `epsilon`, `delta` | ε of everything that it gives out, in all runs together",
        [f"{ACCEPTS}::test_epsilon_is_counted_as_the_accountant_counts_it_and_ends_what_a_node_gives_out"],
    ),
    (
        "later ones may protect the node more, not less, unless its owner writes otherwise",
        [f"{ACCEPTS}::test_the_first_run_is_the_floor_of_later_ones_unless_the_file_says_otherwise"],
    ),
    (
        "`deploy init --own-data` and `deploy start` refuse it, too",
        [
            f"{ACCEPTS}::test_a_deployment_refuses_noise_that_the_seed_takes_off_again",
            f"{INVITATION}::test_a_run_whose_noise_the_seed_takes_off_again_is_not_started",
        ],
    ),
    (
        "accepts anything, unless it has the table",
        [f"{ACCEPTS}::test_a_trial_on_the_servers_own_data_accepts_anything_unless_its_file_says_otherwise"],
    ),
    (
        "A later message must have the same configuration, the same number of clients, sum over clients, inputs",
        [
            f"{ACCEPTS}::test_a_message_that_departs_from_the_configuration_is_refused",
            f"{ACCEPTS}::test_a_message_of_another_configuration_is_refused_even_if_the_owner_has_signed_it_too",
        ],
    ),
    ("for which the client was drawn", [f"{ACCEPTS}::test_a_client_that_was_not_drawn_is_not_asked"]),
    (
        "Under `central` the draw is secret, so that it can't be checked.",
        [f"{LIMITS}::test_a_client_that_was_not_drawn_under_central_noise_answers_all_the_same"],
    ),
    (
        "A round is answered once under one invitation.",
        [f"{LIMITS}::test_a_round_is_answered_once_under_one_invitation"],
    ),
    (
        "leaves again with new noise, and counts again",
        [f"{ACCEPTS}::test_a_round_that_is_interrupted_and_asked_for_again_counts_twice"],
    ),
    (
        "without the gain of a secret draw, so that it is larger than the record's",
        [f"{ACCEPTS}::test_under_central_noise_a_node_counts_more_than_the_record_which_knows_the_draw"],
    ),
    (
        "A damaged ledger stops the node with a sentence",
        [f"{ACCEPTS}::test_a_ledger_that_is_damaged_is_not_begun_anew"],
    ),
    (
        "A node that does not want to rely on the owner either has its peers' keys in its own file",
        [f"{ACTIVE}::test_a_node_that_knows_its_peers_need_not_trust_the_owner_with_their_keys"],
    ),
    # What travels.
    (
        "in runs with secure sums it names all registered clients, with their public keys",
        [
            f"{LEARNS}::test_where_sums_are_secure_clients_are_told_who_is_registered_with_their_keys",
            f"{LEARNS}::test_all_that_a_client_is_sent_is_models_work_and_the_one_sum",
        ],
    ),
    (
        "its name, shape and type of its inputs, its number of examples n_k |",
        [f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else"],
    ),
    (
        "its part v_q v_qᵀ of the one sum over clients, v_q being 1 for its negative classes, and what it counts there",
        [f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else"],
    ),
    (
        "(SCAFFOLD: the change of its control variate; FedAvg with FedPU: nothing), n_k |",
        [
            f"{LEARNS}::test_a_client_returns_its_control_variate_with_scaffold_and_nothing_more",
            f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else",
        ],
    ),
    (
        "a reply has the seconds that it took",
        [f"{WIRE}::test_a_request_says_besides_who_sends_it_and_with_what_programs_and_a_reply_how_long_it_took"],
    ),
    (
        "two clients whose data differ in one pixel and one label send the same, but for their parameters",
        [f"{WIRE}::test_all_but_the_update_is_the_same_for_data_that_differ_in_an_example_and_a_label"],
    ),
    (
        "Labels, examples, class counts and priors stay,",
        [
            f"{WIRE}::test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else",
            f"{DEPLOYMENT}::test_priors_are_estimated_as_in_one_process",
        ],
    ),
    (
        "What a client keeps from round to round, and its ledger, are in a folder on its own disk",
        [f"{ACCEPTS}::test_the_ledger_and_what_a_client_keeps_between_rounds_are_its_owners_alone"],
    ),
    (
        "The terms of the risk stay as well, unless `engine.report_risk = true`.",
        [f"{LEARNS}::test_terms_of_the_risk_leave_only_if_they_are_asked_for_and_never_with_privacy"],
    ),
    (
        "v_q v_qᵀ says exactly which classes a client does not label, so the server learns every client's set.",
        [f"{LEARNS}::test_without_protection_the_server_learns_sizes_class_sets_and_every_update"],
    ),
    (
        'nothing with `method.lent = "off"`',
        [f"{LEARNS}::test_without_the_lent_term_nobody_is_asked_for_classes"],
    ),
    (
        "With `[privacy]` on, n_k is not told either (a secure sum without differential privacy tells Σ n_k).",
        [
            f"{DEPLOYMENT}::test_a_private_model_is_that_of_one_process",
            f"{LIMITS}::test_sizes_can_be_told_from_sums_over_different_clients_and_not_from_sums_over_all",
        ],
    ),
    # Operating it.
    (
        "| none | a node | | nodes connect, and listen nowhere |",
        [f"{OUTSIDER}::test_the_owners_door_is_on_the_loopback_alone_and_nodes_listen_nowhere"],
    ),
    (
        "All of it is readable by its owner alone; so are the databases.",
        [
            f"{LEFT_BEHIND}::test_a_trial_that_is_killed_leaves_no_process_and_no_key",
            f"{OUTSIDER}::test_what_the_server_writes_is_its_owners_alone",
        ],
    ),
    (
        "its processes end with it (on Linux), and a small process that waits for that removes its temporary folder",
        [
            f"{LEFT_BEHIND}::test_a_trial_that_is_killed_leaves_no_process_and_no_key",
            f"{TEMPORARY}::test_it_is_removed_however_its_process_ends",
            f"{PROCESSES}::test_a_process_in_the_middle_of_a_call_ends_when_its_parent_is_killed",
        ],
    ),
    (
        "only a registered node can wait, and somebody with `ca.crt` is refused at once",
        [f"{PATIENCE}::test_who_did_not_ask_for_it_or_is_refused_does_not_wait"],
    ),
]

OF_ROBUSTNESS: Claims = [
    ("A deployment refuses them: its clients have faults of their own.", [f"{CLI}::test_mistakes_end_in_a_sentence"]),
    (
        "With [privacy] on the server sees no single update, and `nan` is refused.",
        [f"{FAULTS}::test_nan_is_not_played_under_privacy"],
    ),
    (
        "What holds NaN, infinity or numbers that training can't come to is left out.",
        [f"{SCREEN}::test_what_is_no_number_is_left_out"],
    ),
    (
        "an update longer than ten times the round's median norm is cut to that",
        [f"{SCREEN}::test_an_update_far_longer_than_the_median_is_cut_to_a_multiple_of_it"],
    ),
    (
        "A client with more examples than the median one takes more steps and may go further in proportion",
        [f"{SCREEN}::test_one_with_many_examples_may_go_further"],
    ),
    (
        "What an aggregation sends beside the model (a control variate) is bounded in the same way",
        [f"{SCREEN}::test_what_goes_beside_the_model_is_bounded_too"],
    ),
    (
        "All need each update by itself and are refused under [privacy], in a sentence.",
        [f"{ROBUST}::test_what_needs_each_update_is_refused_with_privacy"],
    ),
    (
        "Who is left out of a round is left out of all of it",
        [
            f"{OUT}::test_agreement_leaves_a_liar_out_of_what_is_shared",
            f"{OUT}::test_and_of_what_the_server_remembers_for_the_method",
        ],
    ),
]

OF_README: Claims = [
    (
        "with TLS, one key per node, secure aggregation and differential privacy, the global model is that of one",
        [f"{DEPLOYMENT}::test_a_private_model_is_that_of_one_process"],
    ),
]

ALL = {PRIVACY: OF_PRIVACY, DEPLOY: OF_DEPLOY, ROBUSTNESS: OF_ROBUSTNESS, README: OF_README}
EACH = [(page, claim, tests) for page, claims in ALL.items() for claim, tests in claims]

COMPLETE = [
    (PRIVACY, "## What each setting withstands", "## Differential privacy"),
    (DEPLOY, "Each is a list of exact routes", "**A node answers only runs"),
    (DEPLOY, "**What a registered node could still do.**", "Register only keys of people"),
    (DEPLOY, "**What a node's word counts for.**", "## A node sets its own privacy"),
    (DEPLOY, "**1. Is the run acceptable?**", "So the first run is a floor"),
    (DEPLOY, "## What travels", "## Faults"),
]
"""parts of pages, from one text to another, of which every row of a table and every point of a list is a claim"""
DEFINITIONS = ("- **outsider**", "- **curious server**", "- **active server**", "- **colluding clients**")


def plain(text: str) -> str:
    """Return a text on one line."""
    return re.sub(r"\s+", " ", text)


@cache
def page_of(name: str) -> str:
    return plain((ROOT / name).read_text("utf-8"))


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of a file's tests, without importing it."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in found if node.name.startswith("test_"))


@pytest.mark.parametrize(("page", "claim", "tests"), EACH, ids=[claim[:60] for _, claim, _ in EACH])
def test_a_claim_stands_on_its_page_and_its_tests_exist(page: str, claim: str, tests: list[str]) -> None:
    assert plain(claim) in page_of(page), f"{page} does not say so any more"
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name in names_in(file), f"there is no such test in {file}"


def points(text: str) -> list[str]:
    """Return every row of the tables, without their heads, and every point of the lists of a text, each on one line."""
    found: list[str] = []
    lines = text.splitlines()
    for place, line in enumerate(lines):
        head = place + 1 < len(lines) and lines[place + 1].startswith("| ---")
        if line.startswith("- ") or (line.startswith("|") and not head and not line.startswith("| ---")):
            found.append(line)
        elif line.startswith("  ") and found:
            found[-1] += line
    return [plain(point) for point in found if not point.startswith(DEFINITIONS)]


@pytest.mark.parametrize(("page", "start", "end"), COMPLETE, ids=[start.strip("#* ") for _, start, _ in COMPLETE])
def test_no_row_and_no_point_is_without_a_claim(page: str, start: str, end: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    part = text[text.index(start) : text.index(end)]
    claims = [plain(claim) for claim, _ in ALL[page]]
    found = points(part)
    assert len(found) >= 3
    for point in found:
        assert any(claim in point for claim in claims), f"no test is named for: {point}"


@pytest.mark.parametrize("page", ALL)
def test_every_file_of_tests_that_a_page_names_exists(page: str) -> None:
    names = {path.name for path in TESTS.rglob("test_*.py")}
    told = re.findall(r"`(?:tests/)?((?:\w+/)*)(test_\w+\.py)`", page_of(page))
    for folder, name in told:
        assert name in names, name
        assert not folder or (TESTS / folder / name).is_file(), folder + name
    assert told or page in (README, ROBUSTNESS)
