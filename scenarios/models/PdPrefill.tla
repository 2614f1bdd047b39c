------------------------------ MODULE PdPrefill ------------------------------
(***************************************************************************)
(* What prefill does in PdLedger: it computes chunks into source pages,    *)
(* posts their writes, and says when they are done.                        *)
(***************************************************************************)
EXTENDS PdState

ReceiveReserve(m, left) ==      \* a second copy changes nothing
  LET r == m.request
      a == m.attempt
      first == IF r \in TooLong THEN 0 ELSE Granted[r] - Len(m.pages)
      job == [NewJob EXCEPT !.stage = "waiting", !.first = first, !.pages = m.pages,
                            !.computed = first \div ChunkPages, !.posted = first \div ChunkPages]
  IN /\ IF jobs[r][a].stage = "none"
        THEN jobs' = [jobs EXCEPT ![r][a] = job] /\ waiting' = Append(waiting, <<r, a>>)
        ELSE UNCHANGED <<jobs, waiting>>
     /\ net' = left
     /\ UNCHANGED <<decode, prefill, attempts, cache, queue, wire, strays>>

(* What is computed and posted of a request: of a placeholder one page.    *)
PageCount(r) == IF r \in TooLong THEN 1 ELSE Granted[r]
Chunks(r) == IF r \in TooLong THEN 1 ELSE ChunkCount(r)
Indices(r, job, chunk) == IF r \in TooLong THEN {0} ELSE OfChunk(r, chunk, job.first)
FirstOf(r, job, chunk) == IF r \in TooLong THEN 0 ELSE Max(chunk * ChunkPages, job.first)
KvOf(r, a, index) == Own(r, a, IF r \in TooLong THEN -1 ELSE index)

CanAccept == waiting # <<>> /\ Len(prefill.free) >= PageCount(Head(waiting)[1])
Accept(r, a) ==
  /\ CanAccept /\ Head(waiting) = <<r, a>>
  /\ LET got == Take([pool |-> prefill, tickets |-> <<>>], PageCount(r), r, a)
     IN /\ prefill' = got.pool
        /\ jobs' = [jobs EXCEPT ![r][a].stage = "accepted", ![r][a].sources = got.tickets]
  /\ waiting' = Tail(waiting)
  /\ Did("Accept", r, a, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire, net, strays>>

Source(job, i) == job.sources[i + 1]
Target(job, i) == job.pages[i - job.first + 1]

Computed(content, job, r, a, chunk) ==      \* a chunk's KV is in its source pages
  LET indices == Indices(r, job, chunk)
      IndexAt(p) == CHOOSE i \in indices : Source(job, i).page = p
  IN [p \in DOMAIN content |-> IF \E i \in indices : Source(job, i).page = p
                               THEN [l \in LayerSet |-> KvOf(r, a, IndexAt(p))] ELSE content[p]]

Compute(r, a, chunk) ==         \* where the forward is queued it is a step of its own
  LET job == jobs[r][a]
  IN /\ "late-forward" \in Has
     /\ job.stage = "accepted" /\ ~job.released /\ job.computed = chunk /\ chunk < Chunks(r)
     /\ prefill' = [prefill EXCEPT !.content = Computed(@, job, r, a, chunk)]
     /\ jobs' = [jobs EXCEPT ![r][a].computed = chunk + 1]
     /\ Did("Compute", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, net, strays>>

(* The chunk's writes are posted: from now on they cannot be called back.  *)
Post(r, a, chunk) ==
  LET job == jobs[r][a]
      indices == Indices(r, job, chunk)
      now == "late-forward" \notin Has
  IN /\ job.stage = "accepted" /\ job.posted = chunk /\ chunk < Chunks(r)
     /\ ~job.released
     /\ now \/ chunk < job.computed \/ ~Guarded("compute-before-post")
     /\ LET granted == Grant(prefill, [n \in 1..Cardinality(indices) |-> Source(job, FirstOf(r, job, chunk) + n - 1)], Nic)
            posted == IF now THEN [granted EXCEPT !.content = Computed(@, job, r, a, chunk)] ELSE granted
            gone == job.aborted /\ chunk + 1 = Chunks(r)        \* it has gone on to the end
            books == ReleaseAll([pool |-> posted, strays |-> strays], job.sources)
        IN /\ prefill' = IF gone THEN books.pool ELSE posted
           /\ strays' = IF gone THEN books.strays ELSE strays
           /\ jobs' = [jobs EXCEPT ![r][a].posted = chunk + 1, ![r][a].released = gone,
                                   ![r][a].outstanding = @ \cup (indices \X LayerSet)]
     /\ wire' = wire \cup {[request |-> r, attempt |-> a, index |-> i, layer |-> l, epoch |-> prefill.epoch,
                            page |-> Target(job, i).page, gen |-> Target(job, i).gen,
                            source |-> Source(job, i).page, sourceGen |-> Source(job, i).gen]
                           : i \in indices, l \in LayerSet}
     /\ Did("Post", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, net>>

OfJob(job, r, chunk) ==         \* the pages of a chunk that prefill was asked to fill
  [i \in 1..Cardinality(Indices(r, job, chunk)) |-> job.pages[FirstOf(r, job, chunk) - job.first + i]]
Written(job, r, a, chunk, rank) ==
  Message("written", r, a, chunk, rank, <<chunk, rank>> \notin job.failed, OfJob(job, r, chunk))
Acknowledged(job, r, a) ==
  Message("abort-ack", r, a, NoChunk, 0, job.failed = {} \/ ~Guarded("ack-when-drained"), job.pages)

(* The transport is done with some writes of one rank's part of a chunk.   *)
(* Only success says that they have landed.                                *)
Complete(r, a, done, ok) ==
  LET old == jobs[r][a]
      one == CHOOSE w \in done : TRUE
      chunk == ChunkOf(one[1])
      rank == RankOf(one[2])
      job == [old EXCEPT !.outstanding = @ \ done,
                         !.done = IF ok THEN @ \cup done ELSE @,
                         !.failed = IF ok THEN @ ELSE @ \cup {<<chunk, rank>>}]
      whole == SelectSeq([i \in 1..PageCount(r) |-> i - 1],
                         LAMBDA i : (\E w \in done : w[1] = i) /\ \A l \in LayerSet : <<i, l>> \in job.done)
  IN /\ done # {} /\ done \subseteq old.outstanding
     /\ \A w \in done : ChunkOf(w[1]) = chunk /\ RankOf(w[2]) = rank
     /\ ok \/ "fail" \in May
     /\ ok /\ "answer-early" \notin May =>
          ~\E w \in wire : w.request = r /\ w.attempt = a /\ w.epoch = prefill.epoch /\ <<w.index, w.layer>> \in done
     /\ jobs' = [jobs EXCEPT ![r][a] = [job EXCEPT !.owes = @ /\ job.outstanding # {}]]
     /\ prefill' = CloseAll(prefill, [n \in 1..Len(whole) |-> job.sources[whole[n] + 1]], Nic)
     /\ net' = net
          \cup (IF \A w \in job.outstanding : ChunkOf(w[1]) # chunk \/ RankOf(w[2]) # rank
                THEN {Written(job, r, a, chunk, rank)} ELSE {})
          \cup (IF job.owes /\ job.outstanding = {} THEN {Acknowledged(job, r, a)} ELSE {})
     /\ DidPart(IF ok THEN "Complete" ELSE "Fail", r, a, Part(r, a, chunk), rank, 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, strays>>

-----------------------------------------------------------------------------
LetGo(job) ==                   \* prefill is done with an attempt; its source pages go
  IF job.released THEN UNCHANGED <<prefill, strays>>
  ELSE LET books == ReleaseAll([pool |-> prefill, strays |-> strays], job.sources)
       IN prefill' = books.pool /\ strays' = books.strays

(* Decode has given an attempt up: no more is posted, unless no guard      *)
(* minds, and decode is told when nothing is under way any more.           *)
ReceiveAbort(m, left) ==
  LET r == m.request
      a == m.attempt
      job == jobs[r][a]
      goesOn == ~Guarded("stop-posting-on-abort") /\ ~job.released /\ job.posted < Chunks(r)
      owes == Guarded("ack-when-drained") /\ job.outstanding # {}
  IN /\ "post-at-once" \in Has => ~(job.stage = "accepted" /\ ~job.released /\ job.posted < Chunks(r))
                                   /\ ~(CanAccept /\ Head(waiting) = <<r, a>>)
     /\ IF job.stage = "none"
        THEN /\ "overtake" \in May \/ ~\E o \in net : o.type = "reserve" /\ o.request = r /\ o.attempt = a
             /\ net' = left /\ UNCHANGED <<prefill, jobs, waiting, strays>>
        ELSE /\ IF goesOn THEN UNCHANGED <<prefill, strays>> ELSE LetGo(job)
             /\ jobs' = [jobs EXCEPT ![r][a] = [job EXCEPT !.aborted = TRUE, !.owes = owes, !.released = @ \/ ~goesOn]]
             /\ waiting' = IF goesOn THEN waiting ELSE Less(waiting, <<r, a>>)
             /\ net' = left \cup (IF owes THEN {} ELSE {Acknowledged(job, r, a)})
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

ReceiveComplete(m, left) ==
  LET r == m.request
      a == m.attempt
  IN /\ IF jobs[r][a].stage = "none"
        THEN UNCHANGED <<prefill, jobs, strays>>
        ELSE LetGo(jobs[r][a]) /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
     /\ waiting' = Less(waiting, <<r, a>>)
     /\ net' = left
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

WillGiveUp(r, a) == "receive-time-out" \in May /\ Guarded("receive-watchdog")
                    /\ jobs[r][a].stage # "none" /\ ~jobs[r][a].released
GiveUpSource(r, a) ==           \* the watchdog of prefill: decode has not said that it is done
  /\ WillGiveUp(r, a)
  /\ LetGo(jobs[r][a])
  /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
  /\ waiting' = Less(waiting, <<r, a>>)
  /\ net' = IF Guarded("tell-peer-of-end") THEN net \cup {Word("failed", r, a)} ELSE net
  /\ Did("GiveUpSource", r, a, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

Restart ==          \* prefill dies, and another takes its place: it knows of nothing
  /\ "restart" \in May /\ prefill.epoch = 0
  /\ prefill' = [NewPool(PrefillPages) EXCEPT !.epoch = 1]
  /\ jobs' = [r \in Requests |-> [a \in DOMAIN jobs[r] |-> NewJob]]
  /\ waiting' = <<>>
  /\ net' = net \cup {Message("hello", Nobody, 1, NoChunk, 0, TRUE, <<>>)}
  /\ Did("Restart", Nobody, 1, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire, strays>>
=============================================================================
