// A peer that locks with redsync; the orders are told in src/interop/mod.rs.
//
// Its URL is redlock://host:port,host:port with ?fail_fast=true for the option of that name.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
)

// The ttl of locks that are only measured.
const measured = 30 * time.Second

type peer struct {
	sync    *redsync.Redsync
	options []redsync.Option
	held    map[string]*redsync.Mutex
}

func main() {
	hosts, query, _ := strings.Cut(strings.TrimPrefix(os.Args[1], "redlock://"), "?")
	pools := []redis.Pool{}
	for _, host := range strings.Split(hosts, ",") {
		pools = append(pools, goredis.NewPool(driver.NewClient(&driver.Options{Addr: host})))
	}
	peer := peer{sync: redsync.New(pools...), held: map[string]*redsync.Mutex{}}
	if query == "fail_fast=true" {
		peer.options = append(peer.options, redsync.WithFailFast(true))
	}
	go func() {
		// A pipe that was closed ends a peer that waits for a lock, too.
		for os.Getppid() != 1 {
			time.Sleep(time.Second)
		}
		os.Exit(0)
	}()
	fmt.Println("ready")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		if len(words) == 0 || words[0] == "quit" {
			return
		}
		answer, err := peer.obey(words)
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
}

func (p *peer) obey(words []string) (string, error) {
	name := words[1]
	if words[0] == "unlock" {
		mutex, ok := p.held[name]
		if !ok {
			return "not-held", nil
		}
		delete(p.held, name)
		if ok, err := mutex.Unlock(); !ok {
			return "not-held", unless(err, taken)
		}
		return "unlocked", nil
	}
	number, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	switch words[0] {
	case "bench":
		began := time.Now()
		if _, err := p.turns(name, number, time.Time{}); err != nil {
			return "", err
		}
		return fmt.Sprint("took ", time.Since(began).Seconds()), nil
	case "crowd":
		tasks, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		limit, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		return p.crowd(name, number, tasks, time.Duration(limit)*time.Millisecond)
	}
	mutex := p.mutex(name, time.Duration(number)*time.Millisecond)
	if words[0] == "lock" {
		err = p.wait(mutex)
	} else if err = mutex.TryLock(); err != nil {
		return "busy", unless(err, taken)
	}
	if err != nil {
		return "", err
	}
	p.held[name] = mutex
	return "held", nil
}

func (p *peer) mutex(name string, expiry time.Duration) *redsync.Mutex {
	options := append([]redsync.Option{redsync.WithExpiry(expiry)}, p.options...)
	return p.sync.NewMutex(name, options...)
}

// Lock gives up after some tries, which the others do not.
func (p *peer) wait(mutex *redsync.Mutex) error {
	for {
		err := mutex.Lock()
		if err == nil || !taken(err) {
			return err
		}
	}
}

// Takes the lock so often, or until then, and returns how long each wait was.
func (p *peer) turns(name string, count int, until time.Time) ([]time.Duration, error) {
	waits := make([]time.Duration, 0, count)
	for range count {
		if !until.IsZero() && time.Now().After(until) {
			break
		}
		began, mutex := time.Now(), p.mutex(name, measured)
		if err := p.wait(mutex); err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
		if ok, err := mutex.Unlock(); !ok {
			return nil, errors.Join(errors.New("it was lost"), err)
		}
	}
	return waits, nil
}

// Has several take it so often; tells how long that took, the longest wait, the mean, and how many had it.
func (p *peer) crowd(name string, count, tasks int, limit time.Duration) (string, error) {
	var group sync.WaitGroup
	all, failed := make([][]time.Duration, tasks), make([]error, tasks)
	began := time.Now()
	for task := range tasks {
		group.Go(func() { all[task], failed[task] = p.turns(name, count, began.Add(limit)) })
	}
	group.Wait()
	took, waits := time.Since(began), slices.Concat(all...)
	if err := errors.Join(failed...); err != nil {
		return "", err
	}
	sum := time.Duration(0)
	for _, wait := range waits {
		sum += wait
	}
	mean := sum.Seconds() / float64(len(waits))
	longest := slices.Max(waits).Seconds()
	return fmt.Sprintf("took %g %g %g %d", took.Seconds(), longest, mean, len(waits)), nil
}

// Whether the only trouble is that others have the lock, or had it by then.
func taken(err error) bool {
	var all *redsync.ErrTaken
	var one *redsync.ErrNodeTaken
	var failed *redsync.RedisError
	if errors.As(err, &failed) {
		return false
	}
	return errors.As(err, &all) || errors.As(err, &one) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrFailed)
}

func unless(err error, expected func(error) bool) error {
	if err == nil || expected(err) {
		return nil
	}
	return err
}
