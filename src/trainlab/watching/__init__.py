"""Watch: anyone's training script or loop, unchanged, seen through torch's own hooks.

From the command to the report, in the order in which a reader meets it:

    cli/script_verbs        the verb makes a study of the script         `lab/script_study`
    lab/driving             writes the run folder, runs it, sums it up   in the driver
    execute/executors       a process for each trial                     (`launch` starts it)
    execute/worker          `run_group` sees that it is a script         in the worker, which trains nothing
    execute/script_trials   waits for the script's own process, and ends the trial
    watching/script_process starts it: a fresh Python in a copy of the folder
    watching/script_child   runs the script as Python would run it       in the child, from here on
    watching/watched_run    puts the watching together, writes the curve and at last the record
    watching/hooks          torch's calls, told to the tracer
    watching/tracer         which steps are seen whole and which only counted
    watching/timeline       to which part of the work each moment belongs
    watching/step_log       losses, samples, epochs; loaders, models, optimizers
    record/script_record    `watched.json`: all of that on disk
    analysis/evidence       reads it
    analysis/scripts        shares of the parts, sentences, tables, section; `report/contents` asks for it

Beside the way: `followed_model` (layers, probes and TensorBoard of the model), `own_metrics` (what the
script prints or writes), `imports` (libraries that are watched once they are there), `script_cost` (steps
timed in turns), `interventions` (what `diagnose` changes).
"""
