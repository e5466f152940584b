import { useState } from "preact/hooks";
import { isAbsolute, nameOfLast, nameOfRange, type Range } from "../app/range";
import { exactTime, nowNs, readTime, shortTime, zoneName } from "../format/times";
import { Button } from "./Button";
import { Dialog } from "./Dialog";
import { Select, TextField } from "./Field";

const PRESETS = ["5m", "15m", "1h", "3h", "6h", "24h", "7d", "30d", "any"];
const [CUSTOM, EDIT] = ["custom", "edit"];

/** Chooses a range of time: one of the usual ones, or from one point to another in the shown zone. */
export function RangePicker({ range, onChange }: { range: Range; onChange: (range: Range) => void }) {
  const [editing, setEditing] = useState(false);
  const absolute = isAbsolute(range);
  const presets = PRESETS.includes(range.last) ? PRESETS : [range.last, ...PRESETS];
  const choose = (value: string) => {
    if (value === EDIT) setEditing(true);
    else if (value !== CUSTOM) onChange({ last: value, start: null, end: null });
  };
  return (
    <>
      <Select
        label="Time"
        value={absolute ? CUSTOM : range.last}
        onChange={choose}
        options={[
          ...(absolute ? [[CUSTOM, nameOfRange(range)] as const] : []),
          ...presets.map((each) => [each, nameOfLast(each)] as const),
          [EDIT, absolute ? "Change the dates…" : "Between two dates…"] as const,
        ]}
      />
      {editing && (
        <RangeDialog
          range={range}
          onClose={() => setEditing(false)}
          onChange={(next) => {
            setEditing(false);
            onChange(next);
          }}
        />
      )}
    </>
  );
}

interface DialogProps {
  range: Range;
  onChange: (range: Range) => void;
  onClose: () => void;
}

// As a person would type it: exact digits only where there are some.
function written(at: bigint): string {
  return at % 1_000_000_000n === 0n ? shortTime(at) : exactTime(at).replace("T", " ");
}

function RangeDialog({ range, onChange, onClose }: DialogProps) {
  const hourAgo = nowNs() - 3_600_000_000_000n;
  const [from, setFrom] = useState(written(range.start ?? hourAgo - (hourAgo % 1_000_000_000n)));
  const [until, setUntil] = useState(range.end === null ? "" : written(range.end));
  const [tried, setTried] = useState(false);
  const [start, end] = [from, until].map((text) => (text.trim() ? readTime(text) : null));
  const wrong = (text: string, at: bigint | null | undefined) =>
    text.trim() && at === null ? "Write it as 2026-11-17 18:00, with seconds or a zone if you like." : undefined;
  const inverted = start && end && end <= start ? "The end must be after the start." : undefined;
  const none = !from.trim() && !until.trim() ? "Give at least one of the two." : undefined;
  const errors = [wrong(from, start) ?? none, wrong(until, end) ?? inverted];
  const submit = (event: Event) => {
    event.preventDefault();
    setTried(true);
    if (errors.some(Boolean)) return;
    onChange({ last: range.last, start: start ?? null, end: end ?? null });
  };
  return (
    <Dialog title="Between two dates" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <TextField
          label="From"
          value={from}
          onInput={setFrom}
          class="mono"
          error={tried ? errors[0] : undefined}
          hint={`In ${zoneName()}, unless you add a zone such as Z or +02:00. Empty: since the beginning.`}
        />
        <TextField
          label="Until"
          value={until}
          onInput={setUntil}
          class="mono"
          error={tried ? errors[1] : undefined}
          hint="Not included. Empty: until now."
        />
        <div>
          <Button kind="primary" type="submit">
            Use these dates
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
