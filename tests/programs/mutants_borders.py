"""Mutation check of what comes in from other people's files: one line of it is wrong, a test that is named here fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

DATA = "robolearn/data"
FORMATS, BAGS = f"{DATA}/convert/formats", f"{DATA}/convert/bags"
HDF5, REPORTS, OUTLIERS = (
    ("tests/data/tools/test_foreign_hdf5.py",),
    ("tests/reports/test_data_that_comes_in.py",),
    ("tests/data/tools/test_outliers.py",),
)
AT_THE_END = ("tests/data/test_pixels_at_a_page_end.py",)
ARRAYS = ("tests/data/tools/test_foreign_arrays.py",)
NPZ = ("tests/data/tools/test_robomimic_and_npz.py",)
DESCRIBED = ("tests/data/test_data_statistics.py",)
PAGES = ("tests/data/test_parquet_pages.py",)
ONE_BY_ONE = ("tests/data/tools/test_large_imports.py",)
GREY = ("tests/data/tools/test_grey_cameras.py",)
CLOCKS = ("tests/data/tools/test_clocks_of_arrays.py",)
BAG, BOTH_WAYS = ("tests/cli/test_bags.py",), ("tests/cli/test_bags_both_ways.py",)
ALIKE = ("tests/data/tools/test_data_edit.py::test_a_merge_and_a_mixture_are_judged_alike",)
SILENT = ("tests/data/tools/test_nothing_silent.py",)
CLOCK = ("tests/cli/test_bag_clocks.py",)
ARM, ODD = ("tests/data/tools/test_for_arm.py",), ("tests/data/tools/test_odd_types.py",)
FOR_ARM = f"{DATA}/convert/for_arm.py"
PLUGINS = ("tests/core/test_plugins.py",)
PLUGIN_FAULTS = ("tests/core/test_plugin_faults.py",)
LEARNING = ("tests/reports/test_learning_that_was_off.py",)
RATE = ("tests/data/test_rate_of_steps.py",)
IN_TABLES = ("tests/data/tools/test_pictures_in_tables.py::test_a_reader_looks_at_the_row_groups_that_it_needs",)
TEXTS, SUMS = "tests/data/tools/test_texts.py", "tests/data/test_data_checksums.py"
MOVING = ("tests/reports/test_arms_that_move.py",)
ROLLOUTS, ROLLOUT = "hardware/recording/rollouts.py", ("tests/hardware/test_rollouts.py",)
CLIENT, CLIENTS = "hardware/ros2/safety_client.py", ("tests/hardware/test_safety_client.py",)
SENDERS, ALIVE = "hardware/ros2/senders.py", ("tests/hardware/test_alive.py",)
WAITING, WAITED = "hardware/ros2/rollouts_node.py", ("tests/hardware/test_rollouts_node.py",)
OLD_PICTURE = ("tests/data/tools/test_data_validate.py::test_a_picture_may_be_as_old_as_a_station_permits",)

MUTANTS: dict[str, Mutant] = {
    "arrays-of-the-first-episode-alone": Mutant(f"{FORMATS}/hdf5.py", "if key not in heads}", "if False}", HDF5),
    "single-values-vanish": Mutant(f"{FORMATS}/hdf5.py", "single.update(arrays_in(demo, own, single=True))", "0", HDF5),
    "attributes-vanish": Mutant(f"{FORMATS}/hdf5.py", "attributes.update(demo.attrs)", "0", HDF5),
    "strings-of-strangers-vanish": Mutant(f"{FORMATS}/robomimic.py", "if stored is not None else texts_in(file, names, heads)", "", HDF5),
    "text-that-some-lack": Mutant(f"{FORMATS}/hdf5.py", "if all(found[key] in file[name] for name in names)", "", HDF5),
    "a-picture-is-turned-by-a-note": Mutant(
        "robolearn/data/video/readers.py", "cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION", "cv2.IMREAD_COLOR",
        ("tests/data/test_data_images.py::test_a_note_of_the_camera_turns_no_picture",),
    ),
    "a-single-number-is-not-normalised": Mutant(
        "policies/normalize.py", "value.shape[value.ndim - mean.ndim :]", "value.shape[-mean.ndim :]",
        ("tests/cli/test_numbers_of_other_shapes.py",),
    ),
    "stats-of-a-matrix-by-its-rows": Mutant(
        "robolearn/cli/dataset/inspection.py", 'np.ndindex(columns["mean"].shape)', 'np.ndindex(columns["mean"].shape[:1])',
        ("tests/cli/test_numbers_of_other_shapes.py",),
    ),
    "a-slow-recording-is-stored": Mutant(
        "hardware/recording/recording.py", "elif slow := self._rate_fault(RATE_REFUSED):", "elif slow := '':",
        ("tests/hardware/test_recording_in_time.py",),
    ),
    "a-slow-recording-is-not-found": Mutant(
        "robolearn/core/types.py", "abs(seconds * fps / max(steps, 1) - 1.0)", "abs(0.0)", ("tests/reports/test_recordings_that_broke.py",)
    ),
    "a-slow-loop-is-stored": Mutant(f"{DATA}/writing/steps.py", "if fault := stamped_rate_fault(stamps, hz, RATE_REFUSED):", "if fault := '':", RATE),
    "a-slow-loop-is-named-again": Mutant(f"{DATA}/writing/writer.py", "            self._slow = True\n", "", RATE),
    "steps-have-no-time-of-day": Mutant(f"{DATA}/writing/writer.py", "{ACTION: time.time(), **(stamps or {})}", "{ACTION: 0.0, **(stamps or {})}", RATE),
    "a-frame-more-than-steps": Mutant(f"{DATA}/lerobot/columns.py", "return rate_fault(len(stamps) - 1,", "return rate_fault(len(stamps) - 15,", RATE),
    "the-measured-rate-is-of-frames": Mutant(f"{DATA}/lerobot/columns.py", "return (len(stamps) - 1) / taken", "return len(stamps) / taken", RATE),
    "a-row-group-is-read-again": Mutant(f"{DATA}/video/readers.py", "        self._places[int(starts[group])] =", "        self._places = {}\n        self._places[int(starts[group])] =", IN_TABLES),
    "pictures-of-the-row-after": Mutant(f"{DATA}/video/readers.py", "[first][row - first].tolist()", "[first][row - first - 1].tolist()", IN_TABLES),
    "pictures-wait-for-ever": Mutant(f"{DATA}/video/readers.py", "os.SEEK_END) > KEPT", "os.SEEK_END) > 1 << 60", IN_TABLES),
    "a-plug-in-takes-our-name": Mutant("robolearn/core/plugins.py", "elif entry.name in taken or entry.name in loaded:", "elif False:", PLUGINS),
    "a-plug-in-breaks-us": Mutant("robolearn/core/plugins.py", "except (Exception, SystemExit) as error:", "except KeyError as error:", PLUGINS),
    "anything-is-a-plug-in": Mutant("robolearn/core/plugins.py", 'fault = "" if fits(found) else', 'fault = "" if True else', PLUGINS),
    "plug-ins-are-looked-for-anew": Mutant("robolearn/core/plugins.py", "            self._more = None  # who asks", "            # who asks", PLUGINS),
    "a-plug-in-has-another-name": Mutant("robolearn/core/plugins.py", "(own := called(found)) != entry.name", "(own := called(found)) is None", PLUGIN_FAULTS),
    "a-plug-in-writes-into-the-result": Mutant("robolearn/core/plugins.py", "redirect_stdout(sys.stderr)", "redirect_stdout(sys.stdout)", PLUGIN_FAULTS),
    "a-plug-in-is-half-made": Mutant("robolearn/core/plugins.py", "return not own or any(", "return True or any(", PLUGIN_FAULTS),
    "a-group-that-is-none-is-silent": Mutant("robolearn/core/plugins.py", "return [*_SEEN.values(), *lost]", "return [*_SEEN.values()]", PLUGIN_FAULTS),
    "a-plug-in-s-error-is-a-traceback": Mutant("robolearn/core/plugins.py", "if maker is not None and", "if False and", PLUGIN_FAULTS),
    "a-name-that-cannot-be-typed": Mutant("robolearn/core/plugins.py", "if not NAME.fullmatch(entry.name):", "if False:", PLUGIN_FAULTS),
    "an-arm-takes-our-name": Mutant("robots/own.py", 'load("robots", shipped_names(),', 'load("robots", (),', PLUGIN_FAULTS),
    "the-package-of-a-kind-is-lost": Mutant("policies/registry.py", '        found["package"] = package', "        pass", PLUGIN_FAULTS),
    "plug-ins-are-silent": Mutant("robolearn/core/plugins.py", "        if fault:\n            log.warning", "        if fault:\n            log.debug", PLUGINS),
    "a-pickled-codec-is-decoded": Mutant(f"{FORMATS}/zarr_store.py", "            if codec not in CODECS:", "            if False:", ARRAYS),
    "objects-in-a-store": Mutant(f"{FORMATS}/zarr_store.py", 'kind.endswith("O")', 'kind.endswith("Z")', ARRAYS),
    "chunks-of-any-size": Mutant(f"{FORMATS}/zarr_store.py", "* 8 > CHUNK", "* 8 < 0", ARRAYS),
    "ends-of-episodes-fall": Mutant(f"{FORMATS}/zarr_store.py", "or (ends <= starts).any()", "or False", ARRAYS),
    "episodes-begin-a-frame-late": Mutant(f"{FORMATS}/zarr_store.py", "return rows(name, int(starts[number]), int(ends[number]))", "return rows(name, int(starts[number]) + 1, int(ends[number]) + 1)", ARRAYS),
    "records-have-any-checksum": Mutant(f"{FORMATS}/rlds.py", 'if _masked(value) != struct.unpack("<I", stored)[0]:', "if False:", ARRAYS),
    "a-torn-record-is-read": Mutant(f"{FORMATS}/rlds.py", "            if size > min(_RECORD, there):", "            if False:", ARRAYS),
    "the-terminal-step-is-the-first": Mutant(f"{FORMATS}/rlds.py", '"is_terminal")[-1:]', '"is_terminal")[:1]', ARRAYS),
    "the-newest-record-serves-all": Mutant(f"{FORMATS}/rlds.py", "if newest is None or newest[0] != number:", "if newest is None:", ARRAYS),
    "a-split-is-all": Mutant(f"{FORMATS}/rlds.py", "shards[split] if split else", "shards[split] if False else", ARRAYS),
    "pixels-lie-at-the-end-of-memory": Mutant("robolearn/data/video/packing.py", "room[: pixels.size].reshape(pixels.shape)\n    own[:] = pixels", "pixels", AT_THE_END),
    "colours-are-swapped": Mutant("robolearn/data/video/readers.py", "else picture[..., ::-1].astype", "else picture.astype", ARRAYS),
    "aloha-sorts-by-letters": Mutant(f"{FORMATS}/aloha.py", "for _, file in sorted(found)]", "for _, file in sorted(found, key=lambda one: one[1].name)]", ARRAYS),
    "links-lead-out-of-aloha": Mutant(f"{FORMATS}/aloha.py", "                check_own(file, files[number])\n", "", ARRAYS),
    "fewer-pictures-than-actions": Mutant(f"{FORMATS}/arrays.py", "    if count != length:\n", "    if False:\n", ARRAYS),
    "fewer-rows-than-actions": Mutant(f"{FORMATS}/arrays.py", "or (length is not None and len(values) != length)", "or False", ARRAYS),
    "pictures-stay-upside-down": Mutant(f"{FORMATS}/robomimic.py", "pictures[:, ::-1]) if self", "pictures) if self", REPORTS),
    "pictures-are-turned-by-half": Mutant(f"{FORMATS}/robomimic.py", "pictures[:, ::-1]) if self", "pictures[:, ::-1, ::-1]) if self", REPORTS),
    "the-last-row-is-no-final": Mutant(f"{FORMATS}/robomimic.py", "{key: values[length]} if extra", "{key: values[length - 1]} if extra", HDF5),
    "quaternions-of-isaac-as-robosuites": Mutant(f"{FORMATS}/hdf5.py", 'quaternion="wxyz"', 'quaternion="xyzw"', HDF5),
    "unknown-names-come-in-empty": Mutant(f"{FORMATS}/robomimic.py", "    if not arrays.specs:\n", "    if False:\n", HDF5),
    "a-filter-takes-all": Mutant(f"{FORMATS}/robomimic.py", 'if not key or name.removeprefix("data/") in masks[key]', "if True", HDF5),
    "dense-rewards-are-successes": Mutant(f"{FORMATS}/config.py", "        if len(values) > 2:\n            return None", "        if len(values) > 2:\n            return 1e-9", HDF5),
    "zero-is-no-success": Mutant(f"{FORMATS}/config.py", "len(values) == 2 and 0 in values", "len(values) == 2 and min(values) == 0", HDF5),
    "rewards-go-before-the-person": Mutant(f"{FORMATS}/config.py", "options.success is not None or solved is None", "solved is None", HDF5),
    "options-without-a-use-are-dropped": Mutant(f"{FORMATS}/__init__.py", "        FORMATS[name].check(options)\n", "", HDF5),
    "bad-episodes-vanish": Mutant(f"{DATA}/convert/options.py", "            left_out.append(skipped(error))\n", "", HDF5),
    "bad-in-writing-vanish": Mutant(f"{DATA}/convert/source.py", '                source.account.left_out.append(f"{name}: {skipped(error)}")\n', "", HDF5),
    "left-out-arrays-are-not-named": Mutant(f"{FORMATS}/arrays.py", '        account.left_out.append(f"{name} ({found[name]}){why}")\n', "", HDF5),
    "mapped-beside-the-usual": Mutant(f"{FORMATS}/arrays.py", "and not {name, feature} & by_user and", "and", HDF5),
    "mapped-and-usual-too": Mutant(f"{FORMATS}/arrays.py", "not {name, feature} & by_user", "not {feature} & by_user", ARM),
    "the-gripper-opens-where-theirs-closed": Mutant(FOR_ARM, "return -float(np.sign(follows))", "return float(np.sign(follows))", ARM),
    "nought-is-the-middle-of-all": Mutant(FOR_ARM, "(low + high) / 2 if high > low else 0.0", "0.0", ARM),
    "who-cannot-be-had-stops-all": Mutant(FOR_ARM, "sound(turned, drafts, account.left_out, options)", "zip(drafts, map(turned, drafts))", ARM),
    "an-action-leads-nowhere": Mutant(FOR_ARM, "np.concatenate([q[1:], q[-1:]])", "q", ARM),
    "degrees-are-radians": Mutant(FOR_ARM, "if beyond.any():", "if False:", ARM),
    "fingers-that-count-backwards": Mutant(FOR_ARM, "np.abs(fingers.astype(np.float64))", "(fingers.astype(np.float64))", ARM),
    "another-rate-is-ours": Mutant(FOR_ARM, "> 1e-6 * station.control_hz", "> 1e6 * station.control_hz", ARM),
    "egl-without-gl": Mutant(
        "robolearn/__init__.py", 'if _loads("libOpenGL.so.0") or _loads("libGL.so.1"):', "if True:",
        ("tests/cli/test_cli_no_gl.py",),
    ),
    "logs-of-root-are-a-traceback": Mutant(
        "hardware/ros2/process.py", "    except Exception as error:\n        wrong", "    except BadInput as error:\n        wrong",
        ("tests/hardware/test_node_arguments.py",),
    ),
    "a-place-is-cut": Mutant(f"{DATA}/lerobot/layout.py", "if value != int(value):", "if False:", ODD),
    "a-place-may-be-nan": Mutant(f"{DATA}/lerobot/layout.py", "int | float) or not math.isfinite(value)", "int | float)", ODD),
    "a-stamp-led-back-is-at-the-frame-before": Mutant(f"{BAGS}/write.py", "now + back + 2 * SLACK_NS", "now + back", BOTH_WAYS),
    "two-frames-at-one-time": Mutant(f"{BAGS}/write.py", "source == FRAME and back >= 0", "source == FRAME and back > 0", BOTH_WAYS),
    "odd-in-height-alone": Mutant(
        f"{DATA}/video/encoder.py", "bool(height % 2 or width % 2)", "bool(height % 2)", ("tests/data/test_data_video.py",)
    ),
    "training-asks-no-clock": Mutant(f"{DATA}/reading/loading.py", 'if "timestamp" in frames else ()', "if False else ()", REPORTS),
    "import-asks-no-clock": Mutant(f"{FORMATS}/lerobot_v30.py", "in clock_faults(stamped, fps, options.tolerance_s):", "in ():", REPORTS),
    "large-pages-are-arrow-s": Mutant(f"{DATA}/video/readers.py", "size > LARGE", "False", PAGES),
    "a-page-is-not-proved": Mutant(f"{DATA}/video/parquet_pages.py", "            page.check()\n", "", PAGES),
    "a-copy-does-not-repeat": Mutant(f"{DATA}/video/parquet_pages.py", "copied * -(-length // len(copied))", "copied", PAGES),
    "far-copies-are-off-by-one": Mutant(f"{DATA}/video/parquet_pages.py", "out.seek(end - offset)", "out.seek(end - offset + 1)", PAGES),
    "a-literal-is-one-byte-short": Mutant(f"{DATA}/video/parquet_pages.py", "length if length <= 60 else 1 +", "length if length <= 60 else", PAGES),
    "rows-without-a-picture-have-the-next": Mutant(f"{DATA}/video/parquet_pages.py", "== full", ">= 0", PAGES),
    "packed-numbers-begin-at-the-other-end": Mutant(f"{DATA}/video/parquet_pages.py", 'bitorder="little"', 'bitorder="big"', PAGES),
    "levels-of-version-2-are-compressed": Mutant(f"{DATA}/video/parquet_pages.py", "plain, codec = facts[5] + facts[6],", "plain, codec = 0,", PAGES),
    "plain-pages-of-version-2-are-compressed": Mutant(f"{DATA}/video/parquet_pages.py", 'if facts.get(7, True) else "UNCOMPRESSED"', "", PAGES),
    "a-copy-from-before-the-page": Mutant(f"{DATA}/video/parquet_pages.py", " or offset > done + len(recent):", ":", PAGES),
    "a-record-is-read-whole": Mutant(f"{FORMATS}/rlds.py", "for _, value in self._fields(file, values):\n                        yield", "for value in list(self._fields(file, values)):\n                        value = value[1]\n                        kept = [*locals().get('kept', ()), _bytes(file, value)]\n                        yield", ONE_BY_ONE),
    "a-field-ends-beyond-its-message": Mutant(f"{FORMATS}/rlds.py", "if key & 7 != 2 or at > end:", "if False:", ONE_BY_ONE),
    "components-seen-are-of-the-first-block": Mutant(f"{DATA}/convert/seen.py", "component=first + one.component", "component=one.component", OUTLIERS),
    "a-block-begins-where-the-last-ended": Mutant(f"{DATA}/convert/seen.py", "            self._file.seek(0)\n", "            self._file.seek(0) if not first else None\n", OUTLIERS),
    "statistics-are-of-the-first-components": Mutant(f"{DATA}/writing/locked_dataset.py", "slice(c, c + step)", "slice(0, step)", DESCRIBED),
    "statistics-are-of-the-first-file": Mutant(f"{DATA}/writing/locked_dataset.py", "for number in range(self._data.number + 1):\n            file = layout.numbered(layout.DATA_PATH, number)\n            cells", "for number in range(1):\n            file = layout.numbered(layout.DATA_PATH, number)\n            cells", DESCRIBED),
    "many-frames-are-described-by-one-component": Mutant(f"{DATA}/lerobot/statistics.py", "describe(frames[:, c : c + 1])", "describe(frames[:, :1])", DESCRIBED),
    "an-npz-is-read-whole": Mutant(f"{FORMATS}/npz.py", "_load(files[number], but=pictures)", "_load(files[number])", ONE_BY_ONE),
    "fortran-s-order-is-not-seen": Mutant(f"{FORMATS}/npz.py", "if fortran:  #", "if False:  #", ONE_BY_ONE),
    "whole-numbers-are-rounded": Mutant(f"{FORMATS}/npz.py", '    if values.dtype.kind not in "iu":\n', "    if True:\n", NPZ),
    "grey-stays-without-colours": Mutant(f"{FORMATS}/arrays.py", "                shape = (*shape[:2], 3)\n", "", GREY),
    "arrays-ask-no-clock": Mutant(f"{FORMATS}/arrays.py", "in clock_faults(stamps, hz, options.tolerance_s):", "in ():", CLOCKS),
    "a-clock-is-an-observation": Mutant(f"{FORMATS}/arrays.py", "not alone or word not in CLOCKS", "True", CLOCKS),
    "nan-is-on-the-grid": Mutant(f"{DATA}/lerobot/columns.py", "~(np.abs(stamps - expected) <= allowed)", "(np.abs(stamps - expected) > allowed)", REPORTS),
    "a-mixture-s-quantiles-stay-bounds": Mutant(f"{DATA}/mixture.py", "weighted_quantiles(np.concatenate(frames[key]), q)", "{}", ("tests/data/test_data_mixture.py",)),
    "an-episode-without-an-end-spoils-a-log": Mutant(f"{FORMATS}/hil_log.py", "            assembler.cut()\n", "", ("tests/data/tools/test_hil_log.py",)),
    "who-quits-is-counted": Mutant("robolearn/hil/actor.py", "            if labelled or over:", '            if labelled or over or label in ("quit", "return"):', ("tests/hil/test_hil_agent.py",)),
    "a-discarded-take-is-a-failure": Mutant("robolearn/hil/actor.py", "            if labelled or over:", '            if labelled or over or dropped:', ("tests/hil/test_hil_agent.py",)),
    "a-camera-has-the-name-of-a-file": Mutant(f"{DATA}/lerobot/features.py", "return key + \"_\" if is_reserved(camera_name(key)) else key", "return key", ("tests/data/tools/test_pictures_in_tables.py::test_a_camera_of_a_file_of_arrays_does_too",)),
    "edits-lose-the-pictures-of-a-final": Mutant(f"{DATA}/convert/source.py", "dataset.final(index, numbers, images)", "{}", ("tests/data/tools/test_data_edit.py::test_drop_keeps_everything_of_the_others_and_their_videos_to_the_byte",)),
    "lines-end-anywhere": Mutant(f"{FORMATS}/lerobot_v21.py", 'text.split("\\n")', "text.splitlines()", REPORTS),
    "quantiles-stay-bounds": Mutant(f"{DATA}/writing/locked_dataset.py", "                    stats = self._described()\n", "                    stats = split(self._stats, self._sizes)\n", REPORTS),
    "the-outlier-is-of-the-next-episode": Mutant(f"{DATA}/lerobot/columns.py", 'np.flatnonzero(wild), side="right") - 1', "np.flatnonzero(wild))", OUTLIERS),
    "quantiles-hide-the-outlier": Mutant(f"{DATA}/lerobot/columns.py", 'np.quantile(x, 0.05, method="higher")', "np.quantile(x, 0.01)", OUTLIERS),
    "a-gripper-that-closes-at-the-end-is-an-outlier": Mutant(f"{DATA}/lerobot/columns.py", "and last + 1 not in ends", "", OUTLIERS),
    "what-is-observed-is-not-judged": Mutant(f"{FORMATS}/config.py", "                seen.setdefault(key, SeenVectors()).add(found.names[number], values)\n", "                pass\n", OUTLIERS),
    "a-clock-may-step-back": Mutant(f"{BAGS}/series.py", "np.nonzero(np.diff(stamps) < -round(1e9 * BACK_S))", "np.nonzero(np.diff(stamps) < -round(1e15 * BACK_S))", BAG),
    "the-first-of-two-robots-is-the-arm": Mutant(f"{FORMATS}/hdf5.py", "robots[0].lower() if len(robots) == 1", "robots[0].lower() if robots", HDF5),
    "an-arm-beside-another-is-taken": Mutant(f"{FORMATS}/robomimic.py", "    if options.robot and (len(facts.robots) > 1", "    if False and (len(facts.robots) > 1", HDF5),
    "who-skips-is-told-to-skip": Mutant(f"{DATA}/convert/options.py", "removeprefix(SKIP_HINT).removeprefix(SKIPS)", "removeprefix(SKIP_HINT)", ("tests/data/tools/test_clocks_of_arrays.py",)),
    "aloha-looks-at-all-pictures-twice": Mutant(f"{FORMATS}/aloha.py", "partial(_heads, known=seen)", "partial(_heads)", ARRAYS),
    "a-pushed-file-is-read-twice": Mutant("robolearn/cli/hub/remote.py", "compared(opened(path), Tolerances(), summed)", "compared(opened(path), Tolerances())", ("tests/cli/test_hub.py::test_checksums_of_a_set_that_has_some_read_each_file_once",)),
    "1.7-is-true": Mutant(f"{DATA}/lerobot/features.py", "    if wrong.any():\n        raise BadInput(what, got=f\"{given[wrong][0]}\"", "    if False:\n        raise BadInput(what, got=f\"{given[wrong][0]}\"", NPZ),
    "words-are-truth-values": Mutant(f"{DATA}/lerobot/features.py", 'if given.dtype.kind not in "biuf":\n        raise BadInput(what, got=f"{given.dtype}"', 'if False:\n        raise BadInput(what, got=f"{given.dtype}"', NPZ),
    "an-outcome-of-npz-is-any-number": Mutant(f"{FORMATS}/npz.py", 'truths(data[name], f"npz file {file}: {name}")', "np.asarray(data[name])", NPZ),
    "an-intervention-of-npz-is-any-number": Mutant(f"{FORMATS}/npz.py", 'truths(data["intervention"], f"npz file {file}: intervention")', 'np.asarray(data["intervention"], bool)', NPZ),
    "an-outcome-of-hdf5-is-any-number": Mutant(f"{FORMATS}/robomimic.py", 'truths(held[name][()] if held is demo else held[name], f"{where}, {name}")', "np.asarray(held[name][()] if held is demo else held[name])", NPZ),
    "an-intervention-of-hdf5-is-any-number": Mutant(f"{FORMATS}/robomimic.py", 'truths(demo["interventions"][()], f"{where}, interventions")', 'np.asarray(demo["interventions"][()], bool)', NPZ),
    "plain-text-of-zarr-vanishes": Mutant(f"{FORMATS}/zarr_store.py", 'in "UTO" and not head.shape', 'in "TO" and not head.shape', SILENT),
    "text-of-zarr-is-of-the-first-episode": Mutant(f"{FORMATS}/zarr_store.py", "[str(one) for one in numbers(number, name)]", "[str(one) for one in numbers(0, name)]", SILENT),
    "text-of-rlds-vanishes": Mutant(f"{FORMATS}/rlds.py", "            texts.setdefault(word, name)", "            pass", SILENT),
    "text-of-rlds-is-bytes": Mutant(f"{FORMATS}/rlds.py", '[one.decode("utf-8", "replace") for one in', "[str(one) for one in", SILENT),
    "the-first-words-are-those-of-all-steps": Mutant(f"{FORMATS}/rlds.py", "return said or [self._folder]", "return said[:1] or [self._folder]", SILENT),
    "a-recorder-s-clock-may-step-back": Mutant(f"{BAGS}/read.py", "    _check_forwards(\n        topics.back,", "    _check_forwards(\n        (),", CLOCK),
    "a-step-back-of-one-chunk-alone": Mutant(f"{BAGS}/arrival.py", "doubled(np.concatenate(times))", "doubled(times[0])", CLOCK),
    "an-index-in-the-order-of-time": Mutant(f"{BAGS}/arrival.py", "pairs[np.argsort(pairs[:, 1], kind=\"stable\"), 0]", "np.sort(pairs[:, 0])", CLOCK),
    "another-order-is-a-step-back": Mutant(f"{BAGS}/arrival.py", "    if ((before", "    if True or ((before", CLOCK),
    "what-was-not-heard-is-silent": Mutant(f"{BAGS}/read.py", "account.left_out += _unheard(parts[0], topics)", "pass", CLOCK),
    "one-schema-spoils-a-bag": Mutant(f"{BAGS}/recording.py", "        storage_mcap.get_msgdef = definition\n", "", BAG),
    "one-definition-spoils-a-bag": Mutant(f"{BAGS}/recording.py", "        except Exception as error:  # in the library's own words or in Python's\n            reasons", "        except ZeroDivisionError as error:\n            reasons", BAG),
    "a-hub-names-any-file": Mutant("robolearn/cli/hub/remote.py", "            _check_place(file.rfilename, repo)\n", "            pass\n", ("tests/cli/test_hub.py",)),
    "a-refused-actor-cuts-the-log": Mutant("robolearn/hil/outbox.py", "        check_actor(actor)\n", "        check_actor(actor)\n        TransitionLog(folder, actor, schema).close()\n", ("tests/hil/test_hil_station.py",)),
    "damage-is-a-torn-end": Mutant("robolearn/io/append_only.py", "if (begin := _whole_within(rest)) is None:", "if (begin := None) is None:", ("tests/io/test_append_only.py",)),
    "components-may-be-turned": Mutant("robolearn/core/specs.py", "        hint = f\"{moved[0]!r} is another component there\"\n", "        return\n        hint = f\"{moved[0]!r}\"\n", ("tests/core/test_specs.py",)),
    "every-rate-is-a-small-fraction": Mutant(f"{DATA}/video/encoder.py", "return small if abs(", "return small if True or abs(", ("tests/data/test_data_images.py",)),
    "boundaries-are-no-content": Mutant(f"{DATA}/reading/reader.py", "sha256(self.action, self.lengths,", "sha256(self.action,", ("tests/data/test_data_images.py",)),
    "patterns-lead-anywhere": Mutant(f"{DATA}/lerobot/layout.py", 'or ".." in path.split("/"):', "or False:", ("tests/data/tools/test_strangers_info.py",)),
    "names-are-addresses": Mutant(f"{DATA}/lerobot/remote.py", "{quote(name)}", "{name}", ("tests/data/test_data_remote.py",)),
    "numbers-are-rounded-on-the-way-in": Mutant(f"{DATA}/lerobot/features.py", "return kept, kept.astype(given.dtype) != given", "return kept, kept != kept", ("tests/data/tools/test_odd_types.py",)),
    "a-lone-advantage-is-no-number": Mutant("robolearn/rl/returns.py", "if advantage.numel() > 1 else torch.ones_like(advantage)", "if True else advantage", LEARNING),
    "a-time-limit-is-an-end": Mutant("robolearn/rl/returns.py", "gamma * (~terminated) * next_value", "gamma * (~ended) * next_value", LEARNING),
    "a-replayed-time-limit-is-an-end": Mutant(f"{DATA}/replay/buffer.py", "ends = episode.terminated & (start", "ends = (start", LEARNING),
    "a-reset-keeps-the-goal": Mutant("hardware/safety/filter.py", "        self._goal = None\n        self._arms.begin", "        self._arms.begin", MOVING),
    "what-was-asked-for-is-stored": Mutant(ROLLOUTS, "accepted = self._goal = row.accepted", "accepted = row.target", ROLLOUT),
    "an-unanswered-target-was-executed": Mutant(ROLLOUTS, "np.full(len(row.target), np.nan) if self._goal is None else self._goal", "row.target", ROLLOUT),
    "the-way-home-is-an-episode": Mutant(ROLLOUTS, "self._armed = self._begun and arming", "self._armed = arming", ROLLOUT),
    "text-is-cut-at-its-end": Mutant(f"{DATA}/lerobot/texts.py", "return np.array(table[name].to_pylist(), object)", "return np.array(table[name].to_pylist()).astype(object)", (f"{TEXTS}::test_what_a_format_cannot_hold_is_named[NUL]",)),
    "text-has-statistics": Mutant(f"{DATA}/lerobot/tables.py", "            continue  # text has no statistics, as LeRobot has it\n", "            pass\n", (f"{TEXTS}::test_an_edit_keeps_them[drop]",)),
    "text-of-the-next-episode": Mutant(f"{DATA}/lerobot/texts.py", '"equal", episode, f"data set', '"equal", episode + 1, f"data set', (f"{TEXTS}::test_they_are_no_observation_and_episodes_have_them",)),
    "a-failed-read-is-tried-by-ffmpeg-again": Mutant(f"{DATA}/video/container.py", "            self._failed = True\n", "", ("tests/data/test_data_remote_hostile.py",)),
    "a-merge-refuses-what-training-takes": Mutant(f"{DATA}/convert/edit.py", "replace(face, extra=_without_scale(face)).to_json()", "face.to_json()", ALIKE),
    "a-merge-mixes-scales": Mutant(f"{DATA}/convert/edit.py", 'check_compatible(replace(a, observation={}), b, what=what, subject="the first set")', "pass", ALIKE),
    "units-of-exports-change-silently": Mutant(f"{DATA}/convert/edit.py", "if any(unit != units[0] for unit in units):", "if False:", ALIKE),
    "a-crop-keeps-all-text": Mutant(f"{DATA}/convert/edit.py", "texts={name: values[chosen] for", "texts={name: values for", (f"{TEXTS}::test_an_edit_keeps_them[crop]",)),
    "a-merge-has-the-text-of-one": Mutant(f"{DATA}/convert/edit.py", "if all(name in source.texts for source in sources))\n    others", ")\n    others", (f"{TEXTS}::test_a_merge_has_those_of_all_sets",)),
    "text-that-is-lost-is-not-named": Mutant(f"{DATA}/convert/edit.py", '    account.left_out += [f"{name} (string): not every set has it" for name in others]\n', "", (f"{TEXTS}::test_a_merge_has_those_of_all_sets",)),
    "nul-is-cut-without-a-word": Mutant(f"{DATA}/lerobot/texts.py", '"NUL" if any("\\0" in value for value in values) else ""', '""', (f"{TEXTS}::test_what_a_format_cannot_hold_is_named[NUL]",)),
    "a-number-is-text": Mutant(f"{DATA}/lerobot/texts.py", 'in ("string", "large_string", "string_view", "null")', 'in ("string", "large_string", "int64", "null")', (f"{TEXTS}::test_what_is_no_text_is_left_out_and_found",)),
    "a-recording-goes-on-without-text": Mutant(f"{DATA}/writing/locked_dataset.py", '"texts": (self.texts, text_names(stored))', '"texts": (self.texts, self.texts)', (f"{TEXTS}::test_a_writer_takes_whole_episodes_with_them",)),
    "text-takes-the-name-of-a-camera": Mutant(f"{DATA}/lerobot/features.py", "and name not in taken and name", "and name", (f"{TEXTS}::test_a_camera_s_name_goes_before_that_of_a_text",)),
    "what-is-no-text-is-not-found": Mutant(f"{DATA}/validate/opened.py", "if key not in table.column_names or not is_text(table[key].type):", "if False:", (f"{TEXTS}::test_what_is_no_text_is_left_out_and_found",)),
    "a-camera-by-map-meets-our-files": Mutant(f"{FORMATS}/arrays.py", '            check_camera(feature, f"--map {name}={feature}")\n', "            pass\n", ("tests/data/tools/test_pictures_in_tables.py::test_a_camera_of_a_file_of_arrays_does_too",)),
    "wrong-bytes-are-handed-out": Mutant(f"{DATA}/lerobot/remote.py", "elif checksum and sha256(content) != checksum:", "elif False:", (f"{SUMS}::test_a_bit_that_flips_on_the_way_is_asked_for_again",)),
    "kept-blocks-are-believed": Mutant(f"{DATA}/lerobot/remote.py", "or (checksum and sha256(content) != checksum):", "or False:", (f"{SUMS}::test_what_was_kept_before_is_checked_too",)),
    "a-block-has-the-checksum-of-the-first": Mutant(f"{DATA}/lerobot/remote.py", "return sums.sha256[number]", "return sums.sha256[0]", (f"{SUMS}::test_a_bit_that_flips_on_the_way_is_asked_for_again",)),
    "checksums-of-another-size": Mutant(f"{DATA}/lerobot/remote.py", "if sums and sums.size == size:", "if sums:", (f"{SUMS}::test_what_they_are_not_of_is_read_and_said",)),
    "names-keep-their-signs": Mutant(f"{DATA}/lerobot/remote.py", 'unquote(address.removeprefix(f"{self.root}/"))', 'address.removeprefix(f"{self.root}/")', (f"{SUMS}::test_names_with_signs_of_addresses",)),
    "a-server-s-digest-is-not-read": Mutant(f"{DATA}/lerobot/remote.py", "if fault := digest_fault(stated, content):", 'if fault := "":', (f"{SUMS}::test_the_server_s_own_digest_of_an_answer",)),
    "any-digest-will-do": Mutant(f"{DATA}/lerobot/checksums.py", ".digest() != stated:", '.digest() != stated and stated == b"":', (f"{SUMS}::test_digests_in_headers",)),
    "a-flipped-list-is-believed": Mutant(f"{DATA}/lerobot/checksums.py", 'if value["sha256"] != _digest(value["files"]):', "if False:", (f"{SUMS}::test_a_server_s_lies_are_refused_in_a_line[a flipped digit]",)),
    "checksums-lead-out-of-the-set": Mutant(f"{DATA}/lerobot/checksums.py", 'if any(part in ("", ".", "..") for part in name.split("/")) or', "if False or", (f"{SUMS}::test_a_server_s_lies_are_refused_in_a_line",)),
    "fewer-digests-than-blocks": Mutant(f"{DATA}/lerobot/checksums.py", "and len(digests) == -(-size // block)", "", (f"{SUMS}::test_a_server_s_lies_are_refused_in_a_line",)),
    "damage-is-called-stale": Mutant(f"{DATA}/validate/checksums.py", "stale = [name for name in other if since and name in later] + new", "stale = [*other] + new", (f"{SUMS}::test_a_flipped_bit_is_damage",)),
    "a-recording-is-called-damage": Mutant(f"{DATA}/validate/checksums.py", "since = resized or rewritten or any(name.startswith(GROWS) for name in new)", "since = False", (f"{SUMS}::test_what_was_recorded_since_makes_them_stale",)),
    "a-copy-s-times-excuse-damage": Mutant(f"{DATA}/validate/checksums.py", "rewritten = same_time and any(", "rewritten = any(", (f"{SUMS}::test_a_copy_has_other_times",)),
    "a-time-alone-is-no-sign": Mutant(f"{DATA}/validate/checksums.py", "same_time |= time == sums.mtime_ns", "same_time |= False", (f"{SUMS}::test_what_was_edited_since_makes_them_stale",)),
    "a-recording-s-files-are-summed": Mutant(f"{DATA}/writing/checksums.py", "    with layout.lock(root):\n", "    if True:\n", (f"{SUMS}::test_a_set_that_is_recorded_into_gets_none",)),
    "a-stop-is-an-end-of-the-task": Mutant(ROLLOUTS, "ended = outcome in (SUCCESS, FAILURE)", "ended = outcome != TIMEOUT", ROLLOUT),
    "an-arm-that-stands-has-no-steps": Mutant(ROLLOUTS, "if (now - self._last) * self._hz < REPEATED:", "if True:", ROLLOUT),
    "rows-of-what-was-missed-are-stored": Mutant(ROLLOUTS, "if self._row is not None or self._why:", "if False:", ROLLOUT),
    "what-waited-is-read-by-topic": Mutant(WAITING, "sorted(self._waiting, key=lambda one: one[:2]), []", "[*self._waiting], []", WAITED),
    "a-target-is-now": Mutant(WAITING, "np.array(point.positions), sent_s + other,", "np.array(point.positions), time.time(),", WAITED),
    "who-was-stopped-was-never-armed": Mutant(CLIENT, "(stopped and self._arming != before)", "False", CLIENTS),
    "what-is-latched-was-armed-now": Mutant(CLIENT, "(stopped and self._arming != before)", "stopped", CLIENTS),
    "who-is-matched-is-not-alive": Mutant(SENDERS, "max(0, event.current_count - self._alive - self._lost)", "0", ALIVE),
    "the-dead-are-alive": Mutant(SENDERS, "event.current_count - self._alive - self._lost", "event.current_count - self._alive", ALIVE),
    "a-lease-counts-twice": Mutant(SENDERS, "self._unreported - max(0, more)", "self._unreported", ALIVE),
    "an-end-is-a-report": Mutant(SENDERS, "self._unreported - max(0, more)", "self._unreported - more", ALIVE),
    "nobody-counts-messages": Mutant(WAITING, "if number > before + 1 else 0.0", "if False else 0.0", WAITED),
    "a-silent-sender-was-missed": Mutant(WAITING, "sent_s - then if number > before + 1 else 0.0", "sent_s - then", WAITED),
    "inputs-may-be-of-any-age": Mutant(ROLLOUTS, "        if old:\n", "        if False:\n", ROLLOUT),
    "every-clock-is-ours": Mutant(WAITING, "not -ONE_CLOCK_S < self._least < slowest", "False", WAITED),
    "a-slow-start-is-another-clock": Mutant(WAITING, "ONE_CLOCK_S if self._count > ENOUGH else SLOW_S", "ONE_CLOCK_S", WAITED),
    "a-picture-may-be-of-any-age": Mutant(f"{DATA}/validate/tables.py", "pictured if name.startswith(IMAGES)", "1e9 if name.startswith(IMAGES)", OLD_PICTURE),
    "a-picture-is-as-joints-are": Mutant(f"{DATA}/validate/tables.py", "pictured if name.startswith(IMAGES)", "usual if name.startswith(IMAGES)", OLD_PICTURE),
    "an-episode-without-an-outcome-stays": Mutant(ROLLOUTS, "self._storage.put(self._writer.discard)", "pass", ROLLOUT),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("what comes in", MUTANTS))
