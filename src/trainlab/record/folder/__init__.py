"""The run folder. Every file name of a run lives here and nowhere else."""

from trainlab.record.folder.making import RUNS as RUNS
from trainlab.record.folder.making import check_run as check_run
from trainlab.record.folder.making import check_unused as check_unused
from trainlab.record.folder.making import create_run as create_run
from trainlab.record.folder.records import CHANGED as CHANGED
from trainlab.record.folder.records import RecordFile as RecordFile
from trainlab.record.folder.records import read_record as read_record
from trainlab.record.folder.run import RunFolder as RunFolder
from trainlab.record.folder.trial import TrialFolder as TrialFolder
