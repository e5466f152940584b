/** What a job reported, in a line. */

import { bytes, counted, digits } from "../../format/numbers";

type Report = Record<string, unknown>;

const number = (report: Report, name: string) => Number(report[name] ?? 0);

export function summary(job: string, report: Report): string {
  if (report["error"]) return typeof report["error"] === "string" ? report["error"] : JSON.stringify(report["error"]);
  if (report["skipped"]) return String(report["skipped"]);
  switch (job) {
    case "fold":
      return report["folded_to"] === undefined && report["final_rows"] === undefined
        ? "nothing to fold"
        : `${counted(number(report, "staged_rows"), "row")} folded, ${counted(number(report, "final_rows"), "row")} now${took(report)}`;
    case "compact":
      return `${counted(number(report, "files_before"), "file")} before, ${number(report, "files_after")} now; ${bytes(number(report, "bytes_before"))} before, ${bytes(number(report, "bytes_after"))} now${took(report)}`;
    case "vacuum":
      return `${counted(number(report, "files_deleted") + number(report, "staged_files_deleted"), "file")} deleted, ${bytes(number(report, "bytes_deleted"))} given back`;
    default:
      return Object.entries(report)
        .filter(([, value]) => typeof value !== "object")
        .slice(0, 4)
        .map(([name, value]) => `${name.replace(/_/g, " ")} ${String(value)}`)
        .join(", ");
  }
}

function took(report: Report): string {
  const seconds = number(report, "seconds");
  return seconds ? `, in ${digits(seconds)} s` : "";
}

/** What a dry run says that the job would do. */
export function planned(job: string, report: Report): string[] {
  if (job === "compact") return ((report["plan"] as string[] | undefined) ?? []).map(String);
  const files = number(report, "files_deleted") + number(report, "staged_files_deleted");
  const hours = digits(number(report, "retention_s") / 3600);
  return [
    files
      ? `delete ${counted(files, "file")} with ${bytes(number(report, "bytes_deleted"))}`
      : "delete nothing: all files belong to a version that is kept",
    `keep what is younger than ${hours} hours${report["raised_to_floor"] ? ", the least that running readers need" : ""}`,
    ...(number(report, "kept_for_readers")
      ? [`keep ${counted(number(report, "kept_for_readers"), "file")} for readers at work`]
      : []),
  ];
}
